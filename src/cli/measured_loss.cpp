#include "cli/measured_loss.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "codec/codec.hpp"

namespace gradwire::cli {
namespace {

constexpr double kMostLoss = 5;  // percent

// An optional without a value compares below every other.
std::optional<double> worst_loss(const MeasuredLoss& loss) {
  return *std::max_element(loss.percent.begin(), loss.percent.end());
}

bool measured_under_adam(const MeasuredLoss& loss) {
  for (std::size_t run = 0; run < kLossRuns.size(); ++run) {
    if (kLossRuns[run].adam && loss.percent[run]) {
      return true;
    }
  }
  return false;
}

}  // namespace

const std::vector<MeasuredLoss>& measured_losses() {
  static const std::vector<MeasuredLoss> losses{
      {"bf16", {0.01, {}, 0.00, {}}},
      {"fp16", {0.00, {}, {}, {}}},
      {"int8", {-0.08, {}, -0.01, 0.05}},
      {"fp8", {0.23, {}, {}, {}}},
      {"int4", {0.05, 0.15, 2.24, 0.41}},
      {"int2", {0.40, {}, {}, 1.09}},
      {"sign", {2.06, {}, {}, {}}},
      {"topk(10%)+int8", {1.69, {}, {}, {}}},
      {"topk(1%)+int8", {10.80, 6.93, 27.95, {}}},
  };
  return losses;
}

const MeasuredLoss* find_measured_loss(const CodecSpec& codec) {
  const std::vector<MeasuredLoss>& all = measured_losses();
  const auto found = std::find_if(all.begin(), all.end(), [&](const MeasuredLoss& one) {
    return CodecSpec::parse(std::string(one.codec)) == codec;
  });
  return found == all.end() ? nullptr : &*found;
}

std::string loss_text(std::optional<double> percent) {
  return percent ? (*percent > 0 ? "+" : "") + format_number(*percent, 4) + '%' : "-";
}

std::string worst_loss_text(const CodecSpec& codec) {
  if (!codec::Codec(codec, DType::f32).lossy()) {
    return "0%";
  }
  const MeasuredLoss* loss = find_measured_loss(codec);
  return loss == nullptr ? "not measured" : loss_text(worst_loss(*loss)) + (measured_under_adam(*loss) ? "" : " (SGD)");
}

std::string_view loss_after_warmup(const CodecSpec& codec) {
  if (codec == CodecSpec::parse("int4")) {
    return "-0.23% to +0.09% after ten steps of int8 (char_lm, 80 steps, three seeds)";
  }
  if (codec == CodecSpec::parse("int2")) {
    return "+0.38% after 300 steps of int8, with a second moment that was frozen then (char_lm, 2,000 steps, one seed)";
  }
  return "";
}

bool loses_too_much(const CodecSpec& codec) {
  const MeasuredLoss* loss = find_measured_loss(codec);
  return loss != nullptr && worst_loss(*loss).value_or(0) > kMostLoss;
}

}  // namespace gradwire::cli
