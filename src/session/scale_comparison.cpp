#include "session/scale_comparison.hpp"

#include <string>

#include "gradwire/error.hpp"
#include "plan/plan_scale.hpp"

namespace gradwire::session {

ScaleComparison::ScaleComparison(const Tensors& tensors, const plan::Plan& plan, Runner& runner)
    : tensors_(tensors), runner_(runner) {
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan::is_preconditioned(plan.tensors[i])) {
      scaled_.push_back(i);
    }
  }
}

void ScaleComparison::append(std::vector<double>& numbers) {
  constexpr int kLeftOut = 12;  // of a hash, so that a double holds the rest
  std::vector<View> scales;
  for (const std::size_t i : scaled_) {
    scales.push_back(tensors_.scale_view(i));
  }
  for (const std::uint64_t hash : runner_.hashes(scales)) {
    numbers.push_back(static_cast<double>(hash >> kLeftOut));
  }
}

void ScaleComparison::take(const Compared& compared) {
  next_ = compared.step + (first_ ? 1 : kEvery);  // an optimizer's scale is zero in the first step
  first_ = false;
  std::size_t at = 0;
  for (const std::size_t i : scaled_) {
    std::string different;
    for (std::size_t rank = 1; rank < compared.ranks.size(); ++rank) {
      if (compared.ranks[rank][at] != compared.ranks[0][at]) {
        different += (different.empty() ? "" : ", ") + std::to_string(rank);
      }
    }
    if (!different.empty()) {
      throw Error(ErrorCode::mismatch, "the scale of \"" + tensors_.name(i) + "\" in step " +
                                           std::to_string(compared.step) + " differs from rank 0's on rank(s) " +
                                           different +
                                           ", and so do results; make it of what all ranks hold alike, as " +
                                           "the optimizer's state is, and change it between steps only");
    }
    ++at;
  }
}

}  // namespace gradwire::session
