// Finds the rank that holds the others up: notes this rank's steps, and compares them with those of other ranks at
// steps that all ranks know. It does not exist in a world of one, or where GRADWIRE_SLOW is off.
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

// Ranks need not have the same GRADWIRE_SLOW, since launchers do not always pass it on.
/// Returns what a rank says about its GRADWIRE_SLOW when all ranks agree on the plan.
[[nodiscard]] std::string slow_text(std::optional<double> share);
/// Returns the highest share of `told`, what all ranks said; nothing if one of them is off. If ranks differ, the rank
/// that `speaks` warns.
[[nodiscard]] std::optional<double> common_slow_share(const std::vector<std::string>& told, bool speaks);

class RankComparison final : public ComparedPart, public StepTimer {
 public:
  /// The first three must outlive this; `steps` counts the session's steps. `share` is the same on every rank.
  RankComparison(Runner& runner, observe::PeerWaits& waits, const StepWatch& steps, double share);

  /// See SlowJudge::expel(). take() throws its error.
  void expel(double slower_than, std::size_t least) { judge_.expel(slower_than, least); }

  /// Makes no more than two checks, since a step may take microseconds; the StepWatch has measured the step already.
  void step_ended(Time now, double exposed, bool counts) override {
    const Time before = std::exchange(ended_, now);
    if (!counts || !begun_) {
      end_odd_step(now - before, exposed, counts);
    } else if (gaps_.due(now)) {
      gaps_.note(now, std::chrono::duration<double>(now - before).count(), exposed, excused_);
    }
  }
  /// Adds a wait that no PeerWaits was told of.
  void waited(double seconds) noexcept override { excused_ += seconds; }
  [[nodiscard]] bool due(std::uint64_t /*step*/) const override { return own_.count() >= pace_.steps(); }
  /// Returns whether at least half of the interval is over.
  [[nodiscard]] bool rides(std::uint64_t /*step*/) const override { return 2 * own_.count() >= pace_.steps(); }
  [[nodiscard]] bool blocks() const override { return false; }
  void append(std::vector<double>& numbers) override;
  void take(const Compared& compared) override;

  /// Any thread may call this.
  [[nodiscard]] observe::SlowState state() const { return judge_.state(); }

 private:
  void end_odd_step(Time::duration step, double exposed, bool counts);

  SlowJudge judge_;
  ComparisonPace pace_;
  double own_seconds_ = 0;  // this rank's CPU time in the last take()
  bool begun_ = false;      // the first step, in which ranks meet, has ended
  Time ended_;              // when the last step or comparison ended
  double excused_ = 0;      // the sum of waits that no PeerWaits was told of, in seconds
  GapWatch gaps_;
  OwnSteps own_;
};

}  // namespace gradwire::session
