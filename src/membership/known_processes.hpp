// What one process knows about the others and their world, and what it concludes: which processes are silent, which one
// leads, how many are a quorum, and which may come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "membership/process_record.hpp"

namespace gradwire::membership {

struct MembershipSettings {
  Time beat{100};               // time between two signs of life
  Time silent_after{5000};      // time without a sign of life
  std::size_t full = 0;         // members of a whole world: while there are fewer, spares are taken in
  std::vector<Id> start = {};   // all processes that there were at the beginning; empty: the members of the world
  std::vector<Id> spares = {};  // the ones among them that wait for a place
};

class KnownProcesses {
 public:
  /// `first` has no members on a process that waits.
  KnownProcesses(Id own, World first, MembershipSettings given, Time now);

  const Id self;
  const MembershipSettings settings;
  World world;

  /// The record of `who`; an empty one for an unknown process.
  [[nodiscard]] const ProcessRecord& of(Id who) const;
  [[nodiscard]] ProcessRecord& operator[](Id who) { return processes_[who]; }
  [[nodiscard]] std::map<Id, ProcessRecord>& all() noexcept { return processes_; }
  [[nodiscard]] const std::map<Id, ProcessRecord>& all() const noexcept { return processes_; }
  /// The processes for which `is(id, record)` is true.
  template <typename Is>
  [[nodiscard]] Ids which(const Is& is) const {
    Ids found;
    for (const auto& [who, process] : processes_) {
      if (is(who, process)) {
        found.insert(found.end(), who);
      }
    }
    return found;
  }
  [[nodiscard]] bool member(Id who) const { return of(who).is_member(); }

  // Ends.
  [[nodiscard]] bool has_ended(Id who) const { return of(who).has_ended(); }
  [[nodiscard]] std::vector<ProcessEnd> ends(const Ids& ids) const;
  [[nodiscard]] std::vector<ProcessEnd> ends_of_members() const;
  [[nodiscard]] Ids dead_members() const;
  /// The processes that knew that they were members, have not ended as far as is known, and never will be members
  /// again.
  [[nodiscard]] std::vector<Id> gone() const;

  // Silence.
  /// The members that this one listens to; with `before`, the members that listen to this one.
  [[nodiscard]] Ids neighbours(bool before) const;
  [[nodiscard]] bool unheard(Id who, Time now) const;
  [[nodiscard]] bool silent(Id who, Time now) const;
  [[nodiscard]] bool misses_a_member(Time now) const;
  [[nodiscard]] Id leader(Time now) const;

  // Ballots.
  [[nodiscard]] Ids answered() const;
  [[nodiscard]] bool enough(const Ids& answered, const Ids& dead) const;
  [[nodiscard]] bool quorum(const Ids& answered, const Ids& dead) const;

  // Those that wait to be members, and those that have come.
  [[nodiscard]] bool is_waiting(Id who, Time now) const;
  [[nodiscard]] bool waits_knowing(Id who, const Ids& ended) const;
  [[nodiscard]] bool may_come(Id who, std::size_t size, Time now) const;
  [[nodiscard]] std::vector<Id> possibly_taken_in(const Ids& dead) const;
  [[nodiscard]] bool has_to_tell_joiners() const;
  [[nodiscard]] bool all_have_spoken() const;

 private:
  [[nodiscard]] bool is_known_to_all(Id who, Time now) const;

  std::map<Id, ProcessRecord> processes_;
};

}  // namespace gradwire::membership
