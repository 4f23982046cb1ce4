// Processes that wait to be members, spares and those that join: how they are known, and when they are taken in.
#include <algorithm>
#include <iterator>
#include <utility>

#include "membership/constants.hpp"
#include "membership/membership.hpp"

namespace gradwire::membership {

bool Membership::at_start(Id who) const { return std::ranges::find(settings_.start, who) != settings_.start.end(); }

void Membership::meet(Id who, Time now) {
  met_[who] = now;
  if (!at_start(who)) {
    newcomers_.insert(who);
  }
}

// One that never speaks, as on a host that was lost before, is out of reach from some time on.
void Membership::wait_among(std::vector<Id> others) {
  for (const Id who : others) {
    met_.try_emplace(who, lived_);
  }
  told_of_wait_ = std::move(others);
}

bool Membership::is_waiting(Id who, Time now) const {
  const auto found = waiting_.find(who);
  return found != waiting_.end() && now - found->second.said <= kBeatsOfWaiting * settings_.beat;
}

// Then no member of which this process knows the end has taken `who` in.
bool Membership::waits_knowing(Id who, const Ids& ended) const {
  const auto found = waiting_.find(who);
  return found != waiting_.end() &&
         std::includes(found->second.ended.begin(), found->second.ended.end(), ended.begin(), ended.end());
}

// A process that wakes up and finds all others ended would ask this one, so all must know of it. A process that is in
// no world and has been silent for long is not waited for: the ends of the others say that they had gone on (D172).
bool Membership::is_known_to_all(Id who, Time now) const {
  const Ids& known = waiting_.at(who).known;
  const auto knows = [&](Id other) {
    const auto met = met_.find(other);
    const bool lost = !member(other) && (met == met_.end() || now - met->second >= settings_.silent_after);
    return other == who || ended(other) || known.contains(other) || gone_.contains(other) || lost;
  };
  return std::ranges::all_of(settings_.start, knows) && std::ranges::all_of(newcomers_, knows);
}

// `size`: members so far.
bool Membership::may_come(Id who, std::size_t size, Time now) const {
  return is_waiting(who, now) && (at_start(who) ? size < settings_.full : is_known_to_all(who, now));
}

std::vector<Id> Membership::gone() const {
  std::vector<Id> ids;
  std::ranges::copy_if(gone_, std::back_inserter(ids), [&](Id who) { return !ended(who); });
  return ids;
}

void Membership::hear_of_those_gone(const Message& message) {
  std::ranges::copy_if(message.gone, std::inserter(gone_, gone_.end()),
                       [&](Id who) { return who != self_ && !member(who); });
}

void Membership::hear_that_it_waits(const Message& message, Time now) {
  const Id who = message.from;
  meet(who, now);
  const bool is_told = at_start(who) || std::ranges::find(message.known, self_) != message.known.end();
  const std::vector<Id> mine = gone();
  const auto answered = answered_.find(who);
  const bool again = answered == answered_.end() || now - answered->second >= kBeatsOfWaiting * settings_.beat;
  if (!is_told || again || !std::ranges::includes(message.gone, mine)) {
    answered_[who] = now;
    send(who, this->message(Message::Kind::knows));
  }
  if (!expelled_ && !member(who)) {
    Ids ended;
    std::ranges::transform(message.dead, std::inserter(ended, ended.end()), &Ended::who);
    waiting_[who] = {now, std::move(ended), {message.known.begin(), message.known.end()}};
    advance(now);
  }
}

std::vector<Id> Membership::unaware() const {
  std::vector<Id> ids;
  std::ranges::copy_if(told_of_wait_, std::back_inserter(ids), [&](Id who) {
    return who != self_ && !ended(who) && !known_to_.contains(who) && !waiting_.contains(who) && !gone_.contains(who);
  });
  return ids;
}

// A spare does not know of one that has never spoken whether it has come so far. Who joins has been let in by all.
bool Membership::out_of_reach(Id who) const {
  const auto for_long = [&](const std::map<Id, Time>& since) {
    const auto found = since.find(who);
    return found != since.end() && lived_ - found->second >= settings_.silent_after;
  };
  return for_long(cut_) || for_long(spoken_) || (!at_start(self_) && !spoken_.contains(who) && for_long(met_));
}

bool Membership::alone() const {
  Ids all_ended;
  std::ranges::transform(ended_, std::inserter(all_ended, all_ended.end()), [](const auto& one) { return one.first; });
  return world_.members.empty() && std::ranges::all_of(told_of_wait_, [&](Id who) {
           return who == self_ || ended(who) || gone_.contains(who) || out_of_reach(who) ||
                  waits_knowing(who, all_ended);
         });
}

// The lowest member begins it. A step was delivered before, so that each change is worth one, and all hold the same.
void Membership::grow(Time now) {
  const std::size_t size = world_.members.size();
  if (agreeing_ || world_.members.front() != self_ || delivered_ == entered_ || !fresh_.empty() ||
      !joiners_not_notified_.empty() || in_epoch_.size() + 1 < size) {
    return;
  }
  if (std::ranges::any_of(let_in_, [&](Id who) { return may_come(who, size, now); })) {
    begin(now);
    send_all(suspicion(now));
  }
}

// Those that ended may have taken in a process that waited, which goes on with what they decided: unless it still waits
// after it has heard of their end.
std::vector<Id> Membership::unsure(const Ids& dead) const {
  std::vector<Id> ids;
  const auto ask = [&](Id who) {
    if (!member(who) && !ended(who) && !gone_.contains(who) && !waits_knowing(who, dead)) {
      ids.push_back(who);
    }
  };
  std::ranges::for_each(settings_.spares, ask);
  std::ranges::for_each(newcomers_, ask);
  return ids;
}

std::vector<Id> Membership::waits_for_word_of() const {
  return agreeing_ && phase_ != Phase::following && enough({self_}, dead_) && !quorum({self_}, dead_)
             ? unsure(dead_)
             : std::vector<Id>();
}

void Membership::say_that_it_waits(Time now) {
  if (expelled_ || (beaten_ != Time::min() && now - beaten_ < settings_.beat)) {
    return;
  }
  beaten_ = now;
  Message said = message(Message::Kind::waits);
  for (const auto& [who, end] : ended_) {
    said.dead.push_back(end);
  }
  said.known = to_list(known_to_);
  said.gone = gone();
  for (const Id who : told_of_wait_) {
    if (who != self_ && !ended(who) && !gone_.contains(who) && !cut_.contains(who)) {  // it would be kept for them
      send(who, said);
    }
  }
}

void Membership::tell_joiners() {
  if (joiners_not_notified_.empty() || expelled_ || !latest_) {
    return;
  }
  const bool all = std::ranges::all_of(to_hear_, [&](Id who) { return ended(who) || in_epoch_.contains(who); });
  if (all) {
    Message said = message(Message::Kind::decided);
    said.decision = latest_;
    for (const Id who : std::exchange(joiners_not_notified_, {})) {
      send(who, said);
    }
  }
}

}  // namespace gradwire::membership
