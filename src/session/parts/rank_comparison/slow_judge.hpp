// Decides from the measurements of all ranks which rank is slow, and whether it must leave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "observe/slow_ranks.hpp"
#include "observe/sources.hpp"

namespace gradwire::session {

class SlowJudge {
 public:
  /// `share` is the same on every rank.
  SlowJudge(int rank, double share) : rank_(rank), share_(share), slow_({.share = share}) {}

  /// From here on judge() throws Error(expelled) on a rank that makes steps take `slower_than` times as long, as long
  /// as `least` ranks are left without it.
  void expel(double slower_than, std::size_t least) {
    expel_.emplace(slower_than);
    least_ = least;
  }
  /// Judges the ranks; all ranks draw the same conclusion. `cost`: seconds that the comparison took.
  void judge(std::uint64_t step, const std::vector<observe::RankSeen>& ranks, double cost);
  /// Any thread may call this.
  [[nodiscard]] observe::SlowState state() const;

 private:
  void expel_slow(const std::vector<observe::Diagnosis>& found);

  const int rank_;
  const double share_;
  observe::SlowWatch slow_;
  std::optional<observe::ExpelWatch> expel_;
  std::size_t least_ = 1;  // ranks that must be left
  int told_ = -1;          // the rank last told to leave; -1: none

  mutable Mutex mutex_;
  observe::SlowState state_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::session
