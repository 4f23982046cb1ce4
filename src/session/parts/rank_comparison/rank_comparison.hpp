// Which rank holds the others up: what this one saw of its steps, and at steps that all ranks know the comparison with
// the others. Off, or in a world of one, there is none of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/statistics.hpp"
#include "observe/peer_waits.hpp"
#include "observe/slow_ranks.hpp"
#include "observe/sources.hpp"
#include "session/part.hpp"
#include "session/parts/rank_comparison/comparison_pace.hpp"

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

  /// From here on take() is Error(expelled) on a rank for which steps take `slower_than` times as long, as long as
  /// `least` ranks are left.
  void expel(double slower_than, std::size_t least) {
    expel_.emplace(slower_than);
    least_ = least;
  }

  /// No more than two looks, since a step may take microseconds: what it took is in `steps`.
  void step_ended(Time now, double exposed, bool counts) override {
    const Time before = std::exchange(ended_, now);
    if (!counts || !begun_) {
      end_odd_step(now - before, exposed, counts);
    } else if (now - asked_ >= kAsks) {
      note_gap(now, std::chrono::duration<double>(now - before).count(), exposed);
    }
  }
  /// No PeerWaits was told.
  void waited(double seconds) noexcept override { excused_ += seconds; }
  [[nodiscard]] bool due(std::uint64_t /*step*/) const override { return steps() >= pace_.steps(); }
  /// Where at least half of an interval is over.
  [[nodiscard]] bool rides(std::uint64_t /*step*/) const override { return 2 * steps() >= pace_.steps(); }
  [[nodiscard]] bool blocks() const override { return false; }
  void append(std::vector<double>& numbers) override;
  void take(const Compared& compared) override;

  /// Any thread.
  [[nodiscard]] observe::SlowState state() const;

 private:
  // Between two looks at the CPU time, which take half a microsecond.
  static constexpr std::chrono::milliseconds kAsks{5};
  struct Process {
    double cpu_seconds = 0;
    double delayed_seconds = 0;
  };
  static Process look_at_process();
  void note_gap(Time now, double step, double exposed);
  void judge(std::uint64_t step, const std::vector<observe::RankSeen>& ranks, double cost);
  void expel_slow(const std::vector<observe::Diagnosis>& found);
  [[nodiscard]] std::uint64_t steps() const noexcept { return watch_.steps_ever() - steps_before_; }
  void end_odd_step(Time::duration step, double exposed, bool counts);
  [[nodiscard]] observe::RankSeen seen();

  Runner& runner_;
  observe::PeerWaits& waits_;
  double share_;
  const StepWatch& watch_;
  observe::SlowWatch slow_;
  std::optional<observe::ExpelWatch> expel_;
  std::size_t least_ = 1;  // ranks that are left
  int told_ = -1;          // that must go, as was said
  ComparisonPace pace_;
  // At the last comparison, and later by steps that did not count.
  std::uint64_t steps_before_ = 0;
  double exposed_before_ = 0;
  Time since_;
  double own_seconds_ = 0;     // CPU time of this rank in the last take()
  bool begun_ = false;         // the first step has ended, in which ranks meet
  Time ended_;                 // the step before, or a comparison
  double excused_ = 0;         // ever,
  double excused_before_ = 0;  // and at the last comparison
  double ranks_here_ = 1;      // that share this process
  Time asked_;                 // when the process was looked at last, what CPU time it had used,
  double cpu_;
  double waited_ = 0;       // and how long this rank had waited for others
  observe::RankSeen sums_;  // what note_gap() found since the last comparison
  Statistics totals_;       // at the last comparison
  Process process_;         // likewise

  mutable Mutex mutex_;
  observe::SlowState state_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::session
