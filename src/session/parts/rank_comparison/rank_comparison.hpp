// Which rank holds the others up: what this one saw of its steps, and at steps that all ranks know the comparison with
// the others. Off, or in a world of one, there is none of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "observe/peer_waits.hpp"
#include "observe/sources.hpp"
#include "session/part/part.hpp"
#include "session/parts/rank_comparison/comparison_pace.hpp"
#include "session/parts/rank_comparison/own_steps.hpp"
#include "session/parts/rank_comparison/slow_judge.hpp"

namespace gradwire::session {

// Ranks need not have the same GRADWIRE_SLOW, since launchers do not always hand it on.
/// What a rank says of it when all agree on the plan.
[[nodiscard]] std::string slow_text(std::optional<double> share);
/// What comes of what all ranks said: the highest share; nothing where one of them is off. Where they differ, who
/// `speaks` warns.
[[nodiscard]] std::optional<double> common_slow_share(const std::vector<std::string>& told, bool speaks);

class RankComparison final : public ComparedPart, public StepTimer {
 public:
  /// All three must outlive this; `steps` counts the session's. `share`: the same on every rank.
  RankComparison(Runner& runner, observe::PeerWaits& waits, const StepWatch& steps, double share);

  /// See SlowJudge::expel(): take() throws what it throws.
  void expel(double slower_than, std::size_t least) { judge_.expel(slower_than, least); }

  /// No more than two looks, since a step may take microseconds: what it took is in `steps`.
  void step_ended(Time now, double exposed, bool counts) override {
    const Time before = std::exchange(ended_, now);
    if (!counts || !begun_) {
      end_odd_step(now - before, exposed, counts);
    } else if (gaps_.due(now)) {
      gaps_.note(now, std::chrono::duration<double>(now - before).count(), exposed, excused_);
    }
  }
  /// No PeerWaits was told.
  void waited(double seconds) noexcept override { excused_ += seconds; }
  [[nodiscard]] bool due(std::uint64_t /*step*/) const override { return own_.count() >= pace_.steps(); }
  /// Where at least half of an interval is over.
  [[nodiscard]] bool rides(std::uint64_t /*step*/) const override { return 2 * own_.count() >= pace_.steps(); }
  [[nodiscard]] bool blocks() const override { return false; }
  void append(std::vector<double>& numbers) override;
  void take(const Compared& compared) override;

  /// Any thread.
  [[nodiscard]] observe::SlowState state() const { return judge_.state(); }

 private:
  void end_odd_step(Time::duration step, double exposed, bool counts);

  SlowJudge judge_;
  ComparisonPace pace_;
  double own_seconds_ = 0;  // CPU time of this rank in the last take()
  bool begun_ = false;      // the first step has ended, in which ranks meet
  Time ended_;              // the step before, or a comparison
  double excused_ = 0;      // seconds of waits, ever, that no PeerWaits was told of
  GapWatch gaps_;
  OwnSteps own_;
};

}  // namespace gradwire::session
