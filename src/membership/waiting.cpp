// Processes that wait to be members, spares and those that join: how they are known, and when they are taken in.
#include <algorithm>
#include <iterator>
#include <utility>

#include "membership/constants.hpp"
#include "membership/membership.hpp"

namespace gradwire::membership {

void Membership::meet(Id who, Time now) {
  processes_[who].met = now;
  processes_[who].become_known();
}

// One that never speaks, as on a host that was lost before, is out of reach from some time on.
void Membership::wait_among(std::vector<Id> others) {
  for (const Id who : others) {
    std::optional<Time>& met = processes_[who].met;
    met = met.value_or(lived_);
  }
  told_of_wait_ = std::move(others);
}

bool Membership::is_waiting(Id who, Time now) const {
  const ProcessRecord& process = record_of(who);
  return process.is_waiting() && now - process.wait.said <= kBeatsOfWaiting * settings_.beat;
}

// Then no member of which this process knows the end has taken `who` in.
bool Membership::waits_knowing(Id who, const Ids& ended) const {
  const ProcessRecord& process = record_of(who);
  return process.is_waiting() && std::ranges::includes(process.wait.ended, ended);
}

// A process that wakes up and finds all others ended would ask this one, so all must know of it. A process that is in
// no world and has been silent for long is not waited for: the ends of the others say that they had gone on (D172).
bool Membership::is_known_to_all(Id who, Time now) const {
  const Ids& known = record_of(who).wait.known;
  return std::ranges::all_of(processes_, [&](const auto& one) {
    const auto& [other, process] = one;
    const bool lost = !process.is_member() && (!process.met || now - *process.met >= settings_.silent_after);
    return process.origin == ProcessRecord::Origin::stranger || other == who || process.has_ended() ||
           known.contains(other) || process.gone || lost;
  });
}

// `size`: members so far.
bool Membership::may_come(Id who, std::size_t size, Time now) const {
  return is_waiting(who, now) && (at_start(who) ? size < settings_.full : is_known_to_all(who, now));
}

std::vector<Id> Membership::gone() const {
  return to_list(which([](Id, const ProcessRecord& process) { return process.gone && !process.has_ended(); }));
}

void Membership::hear_of_those_gone(const Message& message) {
  for (const Id who : message.gone) {
    if (who != self_ && !member(who)) {
      processes_[who].gone = true;
    }
  }
}

void Membership::hear_that_it_waits(const Message& message, Time now) {
  const Id who = message.from;
  meet(who, now);
  const bool is_told = at_start(who) || std::ranges::find(message.known, self_) != message.known.end();
  const std::vector<Id> mine = gone();
  ProcessRecord& process = processes_[who];
  const bool again = !process.acknowledged || now - *process.acknowledged >= kBeatsOfWaiting * settings_.beat;
  if (!is_told || again || !std::ranges::includes(message.gone, mine)) {
    process.acknowledged = now;
    send(who, this->message(Message::Kind::knows));
  }
  if (!expelled_ && !member(who)) {
    Ids ended;
    std::ranges::transform(message.dead, std::inserter(ended, ended.end()), &Ended::who);
    process.say_waits(now, std::move(ended), {message.known.begin(), message.known.end()});
    advance(now);
  }
}

std::vector<Id> Membership::unaware() const {
  std::vector<Id> ids;
  std::ranges::copy_if(told_of_wait_, std::back_inserter(ids), [&](Id who) {
    const ProcessRecord& process = record_of(who);
    return who != self_ && !process.has_ended() && !process.knows_of_wait && !process.is_waiting() && !process.gone;
  });
  return ids;
}

// A spare does not know of one that has never spoken whether it has come so far. Who joins has been let in by all.
bool Membership::out_of_reach(Id who) const {
  const ProcessRecord& process = record_of(who);
  const auto for_long = [&](std::optional<Time> since) { return since && lived_ - *since >= settings_.silent_after; };
  return for_long(process.cut) || for_long(process.spoke) ||
         (!at_start(self_) && !process.spoke && for_long(process.met));
}

bool Membership::alone() const {
  const Ids all_ended = which([](Id, const ProcessRecord& process) { return process.has_ended(); });
  return world_.members.empty() && std::ranges::all_of(told_of_wait_, [&](Id who) {
           return who == self_ || ended(who) || record_of(who).gone || out_of_reach(who) ||
                  waits_knowing(who, all_ended);
         });
}

// The lowest member begins it. A step was delivered before, so that each change is worth one, and all hold the same.
void Membership::grow(Time now) {
  const std::size_t size = world_.members.size();
  if (agreeing() || world_.members.front() != self_ || delivered_ == entered_ || has_to_tell_joiners() ||
      !all_have_spoken()) {
    return;
  }
  if (std::ranges::any_of(processes_,
                          [&](const auto& one) { return one.second.let_in && may_come(one.first, size, now); })) {
    begin(now);
    send_all(suspicion(now));
  }
}

// Those that ended may have taken in a process that waited, which goes on with what they decided: unless it still waits
// after it has heard of their end.
std::vector<Id> Membership::unsure(const Ids& dead) const {
  std::vector<Id> ids = settings_.spares;
  std::ranges::copy(
      which([](Id, const ProcessRecord& process) { return process.origin == ProcessRecord::Origin::newcomer; }),
      std::back_inserter(ids));
  std::erase_if(ids, [&](Id who) {
    const ProcessRecord& process = record_of(who);
    return process.is_member() || process.has_ended() || process.gone || waits_knowing(who, dead);
  });
  return ids;
}

std::vector<Id> Membership::waits_for_word_of() const {
  const Ids dead = dead_members();
  return leads() && enough({self_}, dead) && !quorum({self_}, dead) ? unsure(dead) : std::vector<Id>();
}

void Membership::say_that_it_waits(Time now) {
  if (expelled_ || (beaten_ != Time::min() && now - beaten_ < settings_.beat)) {
    return;
  }
  beaten_ = now;
  Message said = message(Message::Kind::waits);
  said.dead = ends(which([](Id, const ProcessRecord& process) { return process.has_ended(); }));
  said.known = to_list(which([](Id, const ProcessRecord& process) { return process.knows_of_wait; }));
  said.gone = gone();
  for (const Id who : told_of_wait_) {
    const ProcessRecord& process = record_of(who);
    if (who != self_ && !process.has_ended() && !process.gone && !process.cut) {  // it would be kept for them
      send(who, said);
    }
  }
}

bool Membership::has_to_tell_joiners() const {
  return std::ranges::any_of(world_.members, [&](Id who) { return record_of(who).place == Place::joining; });
}

bool Membership::all_have_spoken() const {
  return std::ranges::all_of(world_.members, [&](Id who) { return who == self_ || record_of(who).here.present; });
}

// A process that joins is told once all that were in know of it: nobody asks it what was decided.
void Membership::tell_joiners() {
  if (expelled_ || !has_to_tell_joiners()) {
    return;
  }
  const bool all = std::ranges::all_of(world_.members, [&](Id who) {
    const ProcessRecord& process = record_of(who);
    return process.place != Place::member || who == self_ || process.has_ended() || process.here.present;
  });
  if (!all) {
    return;
  }
  Message said = message(Message::Kind::decided);
  said.decision = latest_;
  for (const Id who : world_.members) {
    if (processes_[who].place == Place::joining) {
      processes_[who].be_told();
      send(who, said);
    }
  }
}

}  // namespace gradwire::membership
