// Computes the quality of predicted clicks.
#pragma once

#include <span>

namespace ctr_hybrid {

/// Returns the mean of -log of the predicted probability of the actual outcome; predictions are logits.
[[nodiscard]] double log_loss(std::span<const float> logits, std::span<const float> clicks);
/// Returns the probability that a click has a higher logit than a sample without one; equal logits count half. NaN if
/// one kind is missing.
[[nodiscard]] double area_under_curve(std::span<const float> logits, std::span<const float> clicks);

}  // namespace ctr_hybrid
