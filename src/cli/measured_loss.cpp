#include "cli/measured_loss.hpp"

#include <algorithm>

#include "base/units.hpp"

namespace gradwire::cli {

const std::vector<MeasuredLoss>& measured_losses() {
  static const std::vector<MeasuredLoss> losses{
      {"bf16", {0.01, {}, 0.00}}, {"fp16", {0.00, {}, {}}},           {"int8", {-0.08, {}, -0.01}},
      {"fp8", {0.23, {}, {}}},    {"int4", {0.05, 0.15, 2.24}},       {"int2", {0.40, {}, {}}},
      {"sign", {2.06, {}, {}}},   {"topk(10%)+int8", {1.69, {}, {}}}, {"topk(1%)+int8", {10.80, 6.93, 27.95}},
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
  if (codec == CodecSpec::exact()) {
    return "0%";
  }
  const MeasuredLoss* loss = find_measured_loss(codec);
  // An optional without a value compares below every other.
  return loss == nullptr ? "not measured" : loss_text(*std::max_element(loss->percent.begin(), loss->percent.end()));
}

}  // namespace gradwire::cli
