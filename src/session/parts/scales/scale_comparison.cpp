#include "session/parts/scales/scale_comparison.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/error.hpp"
#include "plan/plan_scale.hpp"

namespace gradwire::session {
namespace {

class Scales final : public Part, public ComparedPart {
 public:
  explicit Scales(PartInputs inputs, std::vector<std::size_t> scaled)
      : inputs_(std::move(inputs)), scaled_(std::move(scaled)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "scales"; }
  [[nodiscard]] ComparedPart* compared() noexcept override { return this; }

  [[nodiscard]] bool due(std::uint64_t step) const override { return step >= next_; }
  [[nodiscard]] bool blocks() const override { return false; }
  /// Appends one number for each scale.
  void append(std::vector<double>& numbers) override;
  void take(const Compared& compared) override;

 private:
  static constexpr std::uint64_t kEvery = 64;  // steps

  const PartInputs inputs_;
  const std::vector<std::size_t> scaled_;  // tensors that the plan encodes by their scales
  std::uint64_t next_ = 0;
  bool first_ = true;
};

void Scales::append(std::vector<double>& numbers) {
  constexpr int kLeftOut = 12;  // bits of a hash, so that a double holds the others
  std::vector<View> scales;
  for (const std::size_t i : scaled_) {
    scales.push_back(inputs_.tensors.scale_view(i));
  }
  for (const std::uint64_t hash : inputs_.runner.hashes(scales)) {
    numbers.push_back(static_cast<double>(hash >> kLeftOut));
  }
}

void Scales::take(const Compared& compared) {
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
      throw Error(ErrorCode::mismatch, "the scale of \"" + inputs_.tensors.name(i) + "\" in step " +
                                           std::to_string(compared.step) + " differs from rank 0's on rank(s) " +
                                           different +
                                           ", and so do results; make it of what all ranks hold alike, as " +
                                           "the optimizer's state is, and change it between steps only");
    }
    ++at;
  }
}

}  // namespace

std::unique_ptr<Part> make_scale_comparison(const PartInputs& inputs) {
  std::vector<std::size_t> scaled;
  for (std::size_t i = 0; i < inputs.plan->tensors.size(); ++i) {
    if (plan::is_preconditioned(inputs.plan->tensors[i])) {
      scaled.push_back(i);
    }
  }
  const bool needed = inputs.runner.info().world_size > 1 && !scaled.empty();
  return needed ? std::make_unique<Scales>(inputs, std::move(scaled)) : nullptr;
}

}  // namespace gradwire::session
