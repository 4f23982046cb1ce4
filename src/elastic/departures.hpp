// Processes that a job goes on without. A farewell counts as an end a moment later, what a witness saw at once; those
// that the others left out may live on.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <vector>

#include "membership/world.hpp"

namespace gradwire::session {

/// Not thread-safe.
class Departures {
 public:
  using Id = membership::Id;
  using Clock = std::chrono::steady_clock;

  /// A process that leaves at the end of a job is followed by the others within this time, and needs no agreement.
  static constexpr std::chrono::milliseconds kFarewell{300};

  /// `end.who` has said that it leaves in good order.
  void say_farewell(const membership::ProcessEnd& end, Clock::time_point now) {
    farewells_.try_emplace(end.who, Farewell{now + kFarewell, end});
    left_.insert(end.who);
  }
  /// A process has ended. Returns whether that is to be acted upon: it is not where the end was known, or where a
  /// farewell waits, which then tells of this end.
  [[nodiscard]] bool hear_of_end(const membership::ProcessEnd& end) {
    if (const auto left = farewells_.find(end.who); left != farewells_.end()) {
      left->second.end.epoch = std::max(left->second.end.epoch, end.epoch);
      left->second.end.step = std::max(left->second.end.step, end.step);
      return false;
    }
    return ended_.insert(end.who).second;
  }
  /// Those whose farewells count as ends from now on.
  [[nodiscard]] std::vector<membership::ProcessEnd> take_due(Clock::time_point now) {
    std::vector<membership::ProcessEnd> due;
    std::erase_if(farewells_, [&](const auto& farewell) {
      const bool counts = now >= farewell.second.counts;
      if (counts) {
        due.push_back(farewell.second.end);
        ended_.insert(farewell.first);
      }
      return counts;
    });
    return due;
  }
  /// The others have left `who` out. Returns whether that is new.
  [[nodiscard]] bool leave_out(Id who) { return left_out_.insert(who).second; }
  /// Whether one of them has said farewell.
  [[nodiscard]] bool any_left(const std::set<Id>& who) const {
    return std::ranges::any_of(who, [this](Id id) { return left_.contains(id); });
  }

 private:
  struct Farewell {
    Clock::time_point counts;  // as an end
    membership::ProcessEnd end;
  };
  std::map<Id, Farewell> farewells_;
  std::set<Id> left_;
  std::set<Id> ended_;
  std::set<Id> left_out_;
};

}  // namespace gradwire::session
