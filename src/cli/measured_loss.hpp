// The measured effect of codecs on the loss of trainings: the facts behind the advice of `gradwire plan`. A test of the
// repository checks that they agree with the documents from which they come.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/codec_spec.hpp"

namespace gradwire::cli {

/// A training that was run with each codec and uncompressed.
struct LossRun {
  std::string_view name;
  std::string_view document;  // in the repository
  std::string_view what;
  bool adam = true;  // AdamW; false: SGD with momentum
};
inline constexpr std::array<LossRun, 4> kLossRuns{
    {{"classifier", "docs/results/convergence.txt", "SGD with momentum, 8 workers with sorted labels, mean of 5 seeds",
      false},
     {"char_lm, 1,000 steps", "docs/results/convergence-char_lm.txt", "AdamW, 4 workers, mean of 5 seeds"},
     {"char_lm, 240 steps", "docs/results/convergence-char_lm-short.txt", "AdamW, 4 workers, one seed, a larger model"},
     {"char_lm, 2,000 steps", "docs/results/records.md", "AdamW, 4 workers, one seed; int2 after 300 steps of int8"}}};

struct MeasuredLoss {
  std::string_view codec;
  /// Final held-out loss relative to the uncompressed training, by kLossRuns: 2.24 is 2.24 % more. None: not measured.
  std::array<std::optional<double>, kLossRuns.size()> percent;
};
[[nodiscard]] const std::vector<MeasuredLoss>& measured_losses();

/// The measurements of one codec; none where it was never measured.
[[nodiscard]] const MeasuredLoss* find_measured_loss(const CodecSpec& codec);
/// "+2.24%", "-0.08%", "-" for none.
[[nodiscard]] std::string loss_text(std::optional<double> percent);
/// The largest loss of a codec's runs: "+2.24%"; "+2.06% (SGD)" if none of them was under AdamW. "0%" for exact, "not
/// measured" where there is none.
[[nodiscard]] std::string worst_loss_text(const CodecSpec& codec);
/// The loss of a training with the warm-up that `gradwire plan` advises for the codec, and how it was measured; empty:
/// not measured.
[[nodiscard]] std::string_view loss_after_warmup(const CodecSpec& codec);
/// Returns whether a run lost more than 5%, so that the codec is not advised.
[[nodiscard]] bool loses_too_much(const CodecSpec& codec);

}  // namespace gradwire::cli
