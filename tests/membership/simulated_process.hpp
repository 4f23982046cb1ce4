// A process of a simulation, and what must hold of all of them at its end.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "membership/membership.hpp"

namespace gradwire::membership {

struct Part {
  std::uint32_t epoch;
  std::uint64_t step;
};

struct Packet {
  Id from;
  std::variant<Message, Part> what;
};

struct SimulatedProcess {
  std::unique_ptr<Membership> membership;
  bool ended = false;
  int paused_until = 0;
  int clock = 0;         // what its clock shows beside the simulation's
  int works_until = -1;  // then it sends its part of the next step; -1: it has
  int stopped_since = -1;
  std::uint64_t at = 0;                         // the last step delivered
  std::map<std::uint32_t, Decision> decisions;  // by epoch
  int moved_at = 0;                             // when a step was delivered, or a world began
  std::vector<Id> reaches;                      // those that it knows to be there, or to have been
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::set<Id>> parts;
  std::map<std::uint64_t, std::uint32_t> held;     // step: epoch in which all parts came
  std::map<std::uint64_t, std::uint32_t> results;  // step: epoch, delivered
  std::vector<Packet> inbox;
  bool touched = false;  // it has heard of a death since it last lived

  [[nodiscard]] Time time(int now) const { return Time(now + clock); }
};

/// Where no process was silent while others ran, none that lives was left out.
inline void judge_that_nobody_is_lost(const std::map<Id, SimulatedProcess>& processes, std::ostream& wrong) {
  for (const auto& [who, process] : processes) {
    if (!process.ended && process.membership->expelled()) {
      wrong << "process " << who << " is healthy, and was left out; ";
    }
  }
}

/// Nobody is left of the last world, whose members have all ended, none since it was left out.
inline void judge_the_end(const std::map<Id, SimulatedProcess>& processes, std::ostream& wrong) {
  const World* last = nullptr;
  for (const auto& [who, process] : processes) {
    const World& world = process.membership->world();
    if (last == nullptr || world.epoch > last->epoch) {
      last = &world;
    }
  }
  const auto is_gone = [&](Id member) {
    return processes.at(member).ended && !processes.at(member).membership->expelled();
  };
  if (last == nullptr || !std::ranges::all_of(last->members, is_gone)) {
    wrong << "nobody is left; ";
  }
}

/// Of processes that are neither ended nor expelled: one world, and for each step one result.
/// Says to `wrong` what is wrong. `spares` and `joins`: those that wait; `full`: ranks of a whole world.
inline void judge(std::map<Id, SimulatedProcess>& processes, const std::set<Id>& spares, const std::set<Id>& joins,
                  std::size_t full, std::ostream& wrong) {
  const SimulatedProcess* first = nullptr;
  for (const auto& [who, process] : processes) {
    const Membership& membership = *process.membership;
    if (process.ended || membership.expelled() || membership.world().members.empty()) {
      continue;
    }
    if (membership.agreeing()) {
      wrong << "process " << who << " still agrees; ";
    }
    if (first == nullptr) {
      first = &process;
      continue;
    }
    const Membership& other = *first->membership;
    if (membership.world() != other.world() || membership.delivered() != other.delivered()) {
      wrong << "processes " << other.self() << " and " << who << " are in epochs " << other.world().epoch << " and "
            << membership.world().epoch << " at steps " << other.delivered() << " and " << membership.delivered()
            << "; ";
    }
    for (const auto& [step, epoch] : process.results) {
      const auto found = first->results.find(step);
      if (found != first->results.end() && found->second != epoch) {
        wrong << "from step " << step << " on there are two results; ";
        break;
      }
    }
  }
  if (first == nullptr) {
    judge_the_end(processes, wrong);
  } else {
    const std::vector<Id>& members = first->membership->world().members;
    for (const Id who : members) {
      if (processes[who].ended) {
        wrong << "process " << who << " has ended and is a member; ";
      }
    }
    for (const Id who : spares) {
      const SimulatedProcess& process = processes[who];
      if (!process.ended && !process.membership->expelled() && members.size() < full) {
        wrong << "process " << who << " waits, though members are missing; ";
      }
    }
    for (const Id who : joins) {
      if (!processes[who].ended && !processes[who].membership->expelled()) {
        wrong << "process " << who << " has not been let in; ";
      }
    }
  }
}

}  // namespace gradwire::membership
