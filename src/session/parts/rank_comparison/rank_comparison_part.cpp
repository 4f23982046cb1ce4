#include "session/parts/rank_comparison/rank_comparison_part.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "session/parts/rank_comparison/rank_comparison.hpp"

namespace gradwire::session {
namespace {

// Returns the share in GRADWIRE_SLOW, or the default if its value is wrong: a part that only observes must not end the
// job.
std::optional<double> slow_share_of(int rank) {
  try {
    return environment_slow(observe::kSlowShare);
  } catch (const Error& error) {
    static std::atomic<bool> told = false;  // one warning per process
    if (!told.exchange(true)) {
      log(LogLevel::warning, std::string(error.what()) + ". Rank " + std::to_string(rank) +
                                 " is compared with the default, " + format_number(100 * observe::kSlowShare) +
                                 "% of a step, and the job goes on. Told once");
    }
    return observe::kSlowShare;
  }
}

class RankComparisonPart final : public Part {
 public:
  explicit RankComparisonPart(const PartInputs& inputs)
      : inputs_(inputs), own_share_(slow_share_of(inputs.runner.info().rank)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "rank comparison"; }
  [[nodiscard]] bool has_name_compared() const noexcept override { return false; }
  [[nodiscard]] std::string says() const override { return slow_text(own_share_); }
  void agreed(const Agreement& agreement) override;

  [[nodiscard]] ComparedPart* compared() noexcept override { return comparison_ ? &*comparison_ : nullptr; }
  [[nodiscard]] StepTimer* timer() noexcept override { return comparison_ ? &*comparison_ : nullptr; }
  void add_to(observe::Snapshot& snapshot) const override {
    if (comparison_) {
      snapshot.slow = comparison_->state();
    }
  }

 private:
  const PartInputs inputs_;
  const std::optional<double> own_share_;     // from GRADWIRE_SLOW; none: this rank must not be compared
  std::optional<RankComparison> comparison_;  // made once all ranks have agreed to compare
};

void RankComparisonPart::agreed(const Agreement& agreement) {
  Runner& runner = inputs_.runner;
  if (runner.info().world_size == 1) {
    return;
  }
  const bool on_host = runner.device() == nullptr;
  const bool steps_alike = on_host && !inputs_.plan->has_modes();
  const bool speaks = runner.info().rank == 0;
  const std::optional<double> share = steps_alike ? common_slow_share(agreement.told, speaks) : std::nullopt;
  observe::PeerWaits* waits = share ? runner.watch_peers() : nullptr;
  const auto& elastic = inputs_.policy.elastic;
  const double slower_than = inputs_.undoable && elastic ? elastic->expel_slower_than : 0;
  if (waits == nullptr) {
    if (slower_than > 0 && speaks) {
      log(LogLevel::warning, std::string("[elastic] expel_slower_than does nothing: ranks are not compared ") +
                                 (steps_alike ? "with GRADWIRE_SLOW=off"
                                  : on_host   ? "under sync modes other than \"step\""
                                              : "over device memory"));
    }
    return;
  }
  comparison_.emplace(runner, *waits, inputs_.watch, *share);
  if (slower_than > 0) {
    constexpr std::size_t kLeastRanks = 2;  // with two ranks, nobody knows which one is slow
    comparison_->expel(slower_than, std::max<std::size_t>(elastic->min_ranks, kLeastRanks));
  }
}

}  // namespace

std::unique_ptr<Part> make_rank_comparison(const PartInputs& inputs) {
  return std::make_unique<RankComparisonPart>(inputs);
}

}  // namespace gradwire::session
