// Whether ranks encode by the same scales (TensorOptions::scale): else each would decode results of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "session/runner.hpp"
#include "session/step_comparison.hpp"
#include "session/tensors.hpp"

namespace gradwire::session {

class ScaleComparison final : public ComparedPart {
 public:
  static constexpr std::uint64_t kEvery = 64;  // steps

  /// Of these tensors those that the plan encodes by their scales. `tensors` and `runner` must outlive this.
  ScaleComparison(const Tensors& tensors, const plan::Plan& plan, Runner& runner);
  [[nodiscard]] bool any() const noexcept { return !scaled_.empty(); }

  [[nodiscard]] bool due(std::uint64_t step) const override { return step >= next_; }
  [[nodiscard]] bool blocks() const override { return false; }
  /// One number a scale.
  void append(std::vector<double>& numbers) override;
  /// Error(mismatch) on every rank, which names the first tensor whose scale differs and the ranks that differ.
  void take(const Compared& compared) override;

 private:
  const Tensors& tensors_;
  Runner& runner_;
  std::vector<std::size_t> scaled_;
  std::uint64_t next_ = 0;
  bool first_ = true;
};

}  // namespace gradwire::session
