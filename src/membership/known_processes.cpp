#include "membership/known_processes.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "membership/constants.hpp"

namespace gradwire::membership {
namespace {

MembershipSettings with_start(MembershipSettings settings, const World& world) {
  if (settings.start.empty()) {
    settings.start = world.members;
  }
  return settings;
}

}  // namespace

KnownProcesses::KnownProcesses(Id own, World first, MembershipSettings given, Time now)
    : self(own), settings(with_start(std::move(given), first)), world(std::move(first)) {
  for (const Id who : world.members) {
    processes_[who].stay();
    processes_[who].here.heard = now;
  }
  for (const Id who : settings.start) {
    processes_[who].be_at_start();
    processes_[who].met = now;
  }
}

const ProcessRecord& KnownProcesses::of(Id who) const {
  static const ProcessRecord unknown;
  const auto found = processes_.find(who);
  return found == processes_.end() ? unknown : found->second;
}

// The members listen in a ring, so that each is heard by two others, whichever member is missed.
Ids KnownProcesses::neighbours(bool before) const {
  Ids found;
  const std::size_t size = world.members.size();
  const auto at = static_cast<std::size_t>(std::lower_bound(world.members.begin(), world.members.end(), self) -
                                           world.members.begin());
  for (std::size_t i = 1; i <= kWatched && i < size; ++i) {
    found.insert(world.members[(at + (before ? size - i : i)) % size]);
  }
  return found;
}

// A process that another member cannot hear either counts as silent sooner.
bool KnownProcesses::unheard(Id who, Time now) const {
  if (who == self || has_ended(who)) {
    return false;
  }
  const Time silence = now - of(who).here.heard;
  const auto doubted = [&] {
    return std::ranges::any_of(world.members,
                               [&](Id other) { return !has_ended(other) && of(other).here.doubts.contains(who); });
  };
  return of(who).cut || silence >= settings.silent_after || (silence >= kBeatsOfDoubt * settings.beat && doubted());
}

// Nobody waits for a silent process, or for its ballot. A process that another member still hears only counts as silent
// after `silent_after` without a sign here, however many of its links are broken.
bool KnownProcesses::silent(Id who, Time now) const {
  if (!unheard(who, now)) {
    return false;
  }
  return now - of(who).here.heard >= settings.silent_after || std::ranges::all_of(world.members, [&](Id other) {
           return other == self || other == who || has_ended(other) || unheard(other, now) ||
                  of(other).here.doubts.contains(who);
         });
}

// A link that was already broken in the previous world is reported nowhere else.
bool KnownProcesses::misses_a_member(Time now) const {
  const Ids watching = neighbours(false);
  return std::ranges::any_of(watching, [&](Id who) { return silent(who, now); }) ||
         std::ranges::any_of(world.members, [&](Id who) { return of(who).cut && silent(who, now); });
}

Id KnownProcesses::leader(Time now) const {
  const auto found = std::ranges::find_if(world.members, [&](Id who) { return !has_ended(who) && !silent(who, now); });
  return found == world.members.end() ? self : *found;
}

std::vector<ProcessEnd> KnownProcesses::ends(const Ids& ids) const {
  std::vector<ProcessEnd> list;
  std::ranges::transform(ids, std::back_inserter(list), [&](Id who) { return of(who).end; });
  return list;
}

std::vector<ProcessEnd> KnownProcesses::ends_of_members() const {
  return ends(which([](Id, const ProcessRecord& process) { return process.is_member() && process.has_ended(); }));
}

Ids KnownProcesses::dead_members() const {
  return which([](Id, const ProcessRecord& process) { return process.life == ProcessRecord::Life::dead; });
}

std::vector<Id> KnownProcesses::gone() const {
  return to_list(which([](Id, const ProcessRecord& process) { return process.gone && !process.has_ended(); }));
}

// Returns whether these answers suffice: more than half of the members, or half with the lowest, where ended members
// count as members; or all that have not ended. Two sets of the first kind share a process. A set of the first kind
// with a live process shares it with one of the last kind; if all of its processes have ended, those that answered no
// longer hear what they say (`ballot_dead_`). (It would be wrong to leave ended members out of the half: 3 of 5 may
// have left out two; if two of the three end, the two left out would be a majority of three.) `dead` have never entered
// a later world, so nobody has gone on with them.
bool KnownProcesses::enough(const Ids& answered, const Ids& dead) const {
  std::size_t with = 0;
  bool all = true;
  for (const Id who : world.members) {
    with += answered.contains(who) ? 1 : 0;
    all = all && (answered.contains(who) || dead.contains(who));
  }
  const std::size_t size = world.members.size();
  return all || 2 * with > size || (2 * with == size && answered.contains(world.members.front()));
}

// If it is unknown which world the ended members had entered, others may have gone on with one of them and a process
// that waited.
bool KnownProcesses::quorum(const Ids& answered, const Ids& dead) const {
  const bool told = std::ranges::all_of(dead, [&](Id who) { return of(who).end.epoch > 0; });
  return enough(answered, told || possibly_taken_in(dead).empty() ? dead : Ids());
}

Ids KnownProcesses::answered() const {
  return which([](Id, const ProcessRecord& process) { return process.here.answer != ProcessRecord::Answer::none; });
}

bool KnownProcesses::is_waiting(Id who, Time now) const {
  const ProcessRecord& process = of(who);
  return process.is_waiting() && now - process.wait.said <= kBeatsOfWaiting * settings.beat;
}

// If this is true, no member whose end this process knows has taken `who` in.
bool KnownProcesses::waits_knowing(Id who, const Ids& ended) const {
  const ProcessRecord& process = of(who);
  return process.is_waiting() && std::ranges::includes(process.wait.ended, ended);
}

// A process that wakes up and finds all others ended would ask this one, so all must know of it. A process that is in
// no world and has been silent for long is not waited for: the ends of the others say that they had gone on (D172).
bool KnownProcesses::is_known_to_all(Id who, Time now) const {
  const Ids& known = of(who).wait.known;
  return std::ranges::all_of(processes_, [&](const auto& one) {
    const auto& [other, process] = one;
    const bool lost = !process.is_member() && (!process.met || now - *process.met >= settings.silent_after);
    return process.origin == ProcessRecord::Origin::stranger || other == who || process.has_ended() ||
           known.contains(other) || process.gone || lost;
  });
}

// `size` is the number of members so far.
bool KnownProcesses::may_come(Id who, std::size_t size, Time now) const {
  return is_waiting(who, now) && (of(who).at_start() ? size < settings.full : is_known_to_all(who, now));
}

// The ended members may have taken in a waiting process, which goes on with their decision, unless it still waits after
// it has heard of their end.
std::vector<Id> KnownProcesses::possibly_taken_in(const Ids& dead) const {
  std::vector<Id> ids = settings.spares;
  std::ranges::copy(
      which([](Id, const ProcessRecord& process) { return process.origin == ProcessRecord::Origin::newcomer; }),
      std::back_inserter(ids));
  std::erase_if(ids, [&](Id who) {
    const ProcessRecord& process = of(who);
    return process.is_member() || process.has_ended() || process.gone || waits_knowing(who, dead);
  });
  return ids;
}

bool KnownProcesses::has_to_tell_joiners() const {
  return std::ranges::any_of(world.members, [&](Id who) { return of(who).place == ProcessRecord::Place::joining; });
}

bool KnownProcesses::all_have_spoken() const {
  return std::ranges::all_of(world.members, [&](Id who) { return who == self || of(who).here.present; });
}

}  // namespace gradwire::membership
