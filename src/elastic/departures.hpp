// The processes that a job goes on without. A farewell counts as an end a moment later; an end that a witness saw
// counts at once. Processes that the others left out may live on.
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

  /// If a process leaves at the end of a job, the others follow within this time, and need no agreement.
  static constexpr std::chrono::milliseconds kFarewell{300};

  /// Notes that `end.who` has said that it leaves in good order.
  void say_farewell(const membership::ProcessEnd& end, Clock::time_point now) {
    farewells_.try_emplace(end.who, Farewell{now + kFarewell, end});
    said_farewell_.insert(end.who);
  }
  /// Notes that a process has ended. Returns whether to act upon it: not if the end was known, or if a farewell of the
  /// process is pending, which then reports this end.
  [[nodiscard]] bool hear_of_end(const membership::ProcessEnd& end) {
    if (const auto left = farewells_.find(end.who); left != farewells_.end()) {
      left->second.end.epoch = std::max(left->second.end.epoch, end.epoch);
      left->second.end.step = std::max(left->second.end.step, end.step);
      return false;
    }
    return ended_.insert(end.who).second;
  }
  /// Returns the processes whose farewells count as ends from now on.
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
  /// Notes that the others have left `who` out. Returns whether that is new.
  [[nodiscard]] bool leave_out(Id who) { return left_out_.insert(who).second; }
  /// Whether any of these processes has said farewell.
  [[nodiscard]] bool any_said_farewell(const std::set<Id>& who) const {
    return std::ranges::any_of(who, [this](Id id) { return said_farewell_.contains(id); });
  }

 private:
  struct Farewell {
    Clock::time_point counts;  // when it counts as an end
    membership::ProcessEnd end;
  };
  std::map<Id, Farewell> farewells_;
  std::set<Id> said_farewell_;
  std::set<Id> ended_;
  std::set<Id> left_out_;
};

}  // namespace gradwire::session
