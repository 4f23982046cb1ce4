// Checks what must hold of a simulation, at each step and at its end.
#pragma once

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "tests/membership/simulated_process.hpp"

namespace gradwire::membership {

/// Records what any process has delivered and confirmed so far.
class SimulatedTruth {
 public:
  /// `ends_name_worlds`: the end of a process says which world it had entered.
  SimulatedTruth(std::ostream& wrong, bool ends_name_worlds) : wrong_(wrong), ends_name_worlds_(ends_name_worlds) {}

  /// Checks that no two worlds deliver that were decided differently.
  void deliver(Id who, const World& world) {
    const World& first = delivering_.try_emplace(world.epoch, world).first->second;
    if (first != world) {
      wrong_ << "process " << who << " delivers in another world of epoch " << world.epoch << "; ";
    }
  }

  /// Checks that confirmed steps count in all later worlds, and that a world that a process entered is the only one of
  /// its epoch, unless all that entered it may have ended without telling anybody.
  void enter(Id who, const SimulatedProcess& process, const Decision& decision) {
    const Decision& first = entered_.try_emplace(decision.world.epoch, decision).first->second;
    if (first != decision && ends_name_worlds_) {
      wrong_ << "process " << who << " enters another world of epoch " << decision.world.epoch << "; ";
    }
    for (const auto& [epoch, step] : confirmed_in_) {
      if (epoch < decision.world.epoch && decision.delivered < step) {
        wrong_ << "process " << who << " goes on in epoch " << decision.world.epoch << " behind step "
               << decision.delivered << ", and step " << step << " was confirmed in epoch " << epoch << "; ";
      }
    }
    compare(who, process, decision.delivered);
  }

  void confirm(Id who, const SimulatedProcess& process, std::uint64_t step) {
    const std::uint32_t epoch = process.membership->world().epoch;
    std::uint64_t& last = confirmed_in_[epoch];
    last = std::max(last, step);
    for (const auto& [later, decision] : entered_) {
      if (later > epoch && decision.delivered < step) {
        wrong_ << "step " << step << " is confirmed to process " << who << " in epoch " << epoch << ", and epoch "
               << later << " begins behind step " << decision.delivered << "; ";
      }
    }
    compare(who, process, step);
    for (const auto& [one, result] : process.results) {
      if (one <= step) {
        confirmed_.emplace(one, result);
      }
    }
  }

  [[nodiscard]] std::uint32_t last_epoch() const { return entered_.empty() ? 1 : entered_.rbegin()->first; }

 private:
  void compare(Id who, const SimulatedProcess& process, std::uint64_t up_to) {
    for (const auto& [step, result] : process.results) {
      const auto found = confirmed_.find(step);
      if (step <= up_to && found != confirmed_.end() && found->second != result) {
        wrong_ << "process " << who << " has another result of step " << step << " than was confirmed; ";
        return;
      }
    }
  }

  std::ostream& wrong_;
  const bool ends_name_worlds_;
  std::map<std::uint32_t, World> delivering_;
  std::map<std::uint32_t, Decision> entered_;            // decisions that a member entered
  std::map<std::uint32_t, std::uint64_t> confirmed_in_;  // confirmed steps by the epoch of the process that asked
  std::map<std::uint64_t, std::uint32_t> confirmed_;     // result by step
};

/// Checks that a process that goes on with a decision has delivered no step beyond it. A process that has not yet
/// reached the decision has delivered at most one more step: one that all processes had told it they hold.
inline void judge_steps(const SimulatedProcesses& processes, Id who, const Decision& decision, std::ostream& wrong) {
  const std::uint64_t at = processes.at(who).at;
  if (at > decision.delivered) {
    wrong << "process " << who << " goes on in epoch " << decision.world.epoch << " behind step " << decision.delivered
          << ", and has delivered step " << at << "; ";
  }
  for (const auto& [other, process] : processes) {
    if (process.membership->epoch_entered() < decision.world.epoch && process.at > decision.delivered + 1) {
      wrong << "process " << other << " has delivered step " << process.at << ", and epoch " << decision.world.epoch
            << " begins behind step " << decision.delivered << "; ";
    }
  }
}

/// Checks that steps go on once no more faults strike. `before` holds the step of each process at that time.
inline void judge_that_steps_go_on(const SimulatedProcesses& processes, const std::map<Id, std::uint64_t>& before,
                                   std::ostream& wrong) {
  for (const auto& [who, process] : processes) {
    if (process.lives() && process.is_member() && process.at <= before.at(who)) {
      wrong << "process " << who << " makes no steps any more, at step " << process.at << "; ";
    }
  }
}

/// Checks that a process gives up only if too few processes live, or if a later world exists about which only ended
/// processes could tell it. `disturbed`: links or pauses may keep it from live processes. `ends_name_worlds`: without
/// it, the survivors cannot know that all others have ended in this world.
inline void judge_that_it_may_give_up(const SimulatedProcesses& processes, Id who, std::uint32_t last_epoch,
                                      bool disturbed, bool ends_name_worlds, std::ostream& wrong) {
  const Membership& membership = *processes.at(who).membership;
  const World& world = membership.world();
  std::size_t alive = 0;
  bool all = ends_name_worlds;
  for (const Id member : world.members) {
    const SimulatedProcess& process = processes.at(member);
    alive += process.lives() ? 1 : 0;
    all = all && (process.lives() || (process.ended_for_certain() && process.entered > 0));
  }
  const bool enough = all || 2 * alive > world.members.size() ||
                      (2 * alive == world.members.size() && processes.at(world.members.front()).lives());
  if (last_epoch <= world.epoch && !membership.went_on() && enough && !disturbed) {
    wrong << "process " << who << " gives up in epoch " << world.epoch << ", though a quorum lives; ";
  }
}

/// Checks, for simulations in which all links work and all live processes run, that a world goes on if most of its
/// members live, or that they finish their steps. Only members that knew of that world count.
inline void judge_that_most_go_on(const SimulatedProcesses& processes, std::ostream& wrong) {
  using Fate = SimulatedProcess::Fate;
  const World* last = nullptr;
  bool goes_on = false;
  for (const auto& [who, process] : processes) {
    const World& world = process.membership->world();
    last = process.is_member() && (last == nullptr || world.epoch > last->epoch) ? &world : last;
    goes_on = goes_on || process.fate == Fate::finished || (process.lives() && process.is_member());
  }
  const auto is_left = [&](Id who) {
    const SimulatedProcess& process = processes.at(who);
    return process.fate != Fate::killed && process.fate != Fate::lost && process.fate != Fate::stopped &&
           process.membership->epoch_entered() == last->epoch;
  };
  if (!goes_on && last != nullptr &&
      2 * std::ranges::count_if(last->members, is_left) > static_cast<std::ptrdiff_t>(last->members.size())) {
    wrong << "most of epoch " << last->epoch << " are left, and all gave up; ";
  }
}

/// Checks, for simulations in which all live processes run, that only ends of links that were down for long are lost,
/// one for each link. Both ends may give up if a third process ends, since neither is then enough. Nobody waits for a
/// process that no other can reach (docs/explanation/elastic-lost-ranks.md: it is suspected at once), such as one of
/// two whose link is not mended within a second. `may_lose(who)` returns whether a link of `who` was down for long.
template <typename MayLose>
void judge_who_is_lost(const SimulatedProcesses& processes, const MayLose& may_lose, int broken, std::ostream& wrong) {
  using Fate = SimulatedProcess::Fate;
  int left_out = 0;
  for (const auto& [who, process] : processes) {
    const bool expelled = process.membership->expelled();
    left_out += expelled ? 1 : 0;
    const bool lost = expelled || (process.fate == Fate::gave_up && !process.was_alone);
    if (lost && !process.was_cut_off && !may_lose(who)) {
      wrong << "process " << who << " is lost, and no link of it was down for long; ";
    }
  }
  if (left_out > broken) {
    wrong << left_out << " processes are left out, and " << broken << " links broke; ";
  }
}

/// Returns whether a live member is in a later world than `who`, together with it, and can tell it so.
inline bool may_be_told(const SimulatedProcesses& processes, Id who) {
  const std::uint32_t epoch = processes.at(who).membership->world().epoch;
  return std::ranges::any_of(processes, [&](const auto& one) {
    const Membership& membership = *one.second.membership;
    return one.second.lives() && one.second.is_member() && membership.world().epoch > epoch &&
           std::ranges::binary_search(membership.world().members, who);
  });
}

/// Checks, if nobody is left, that all members of the last world have ended, and that none of them was left out.
inline void judge_the_end(const SimulatedProcesses& processes, std::ostream& wrong) {
  const World* last = nullptr;
  for (const auto& [who, process] : processes) {
    const World& world = process.membership->world();
    if (last == nullptr || world.epoch > last->epoch) {
      last = &world;
    }
  }
  const auto is_gone = [&](Id member) {
    return !processes.at(member).lives() && !processes.at(member).membership->expelled();
  };
  if (last == nullptr || !std::ranges::all_of(last->members, is_gone)) {
    wrong << "nobody is left; ";
  }
}

/// Checks that all processes that ended well or still live are in one world, and have one result of each step.
inline void judge_results(const SimulatedProcesses& processes, std::ostream& wrong) {
  std::map<std::uint64_t, std::uint32_t> first;
  for (const auto& [who, process] : processes) {
    const bool counts = process.fate == SimulatedProcess::Fate::finished || (process.lives() && process.is_member());
    for (const auto& [step, result] : process.results) {
      if (counts && first.emplace(step, result).first->second != result) {
        wrong << "from step " << step << " on there are two results, of which process " << who << " has one; ";
        break;
      }
    }
  }
}

/// Checks that all running processes are in one world, and that nobody waits for a free place. Writes violations to
/// `wrong`. `spares` and `joins` are the waiting processes, `full` is the number of ranks of a whole world.
inline void judge(SimulatedProcesses& processes, const std::set<Id>& spares, const std::set<Id>& joins,
                  std::size_t full, std::ostream& wrong) {
  const SimulatedProcess* first = nullptr;
  for (const auto& [who, process] : processes) {
    const Membership& membership = *process.membership;
    if (!process.lives() || !process.is_member()) {
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
  }
  judge_results(processes, wrong);
  if (first == nullptr) {
    for (const auto& [who, process] : processes) {
      if (process.lives() && !process.membership->expelled()) {
        wrong << "process " << who << " waits, though nobody is left; ";
      }
    }
    return judge_the_end(processes, wrong);
  }
  const std::vector<Id>& members = first->membership->world().members;
  for (const Id who : members) {
    if (!processes[who].lives()) {
      wrong << "process " << who << " has ended and is a member; ";
    }
  }
  for (const Id who : spares) {
    if (processes[who].lives() && !processes[who].membership->expelled() && members.size() < full) {
      wrong << "process " << who << " waits, though members are missing; ";
    }
  }
  for (const Id who : joins) {
    if (processes[who].lives() && !processes[who].membership->expelled()) {
      wrong << "process " << who << " has not been let in; ";
    }
  }
}

/// Checks, for simulations in which processes leave after their last step, that nobody is left behind.
inline void judge_that_all_end(const SimulatedProcesses& processes, std::ostream& wrong) {
  for (const auto& [who, process] : processes) {
    if (process.lives()) {
      const Membership& membership = *process.membership;
      wrong << "process " << who << (process.is_member() ? " never ends, in epoch " : " waits for ever, in epoch ")
            << membership.world().epoch << " at step " << process.at << (membership.agreeing() ? ", and agrees" : "")
            << "; ";
    }
  }
  judge_results(processes, wrong);
}

}  // namespace gradwire::membership
