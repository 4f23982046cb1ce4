// Processes that wait to be members, spares and those that join: how they are known, and when they are taken in.
#include <algorithm>
#include <iterator>
#include <utility>

#include "membership/constants.hpp"
#include "membership/membership.hpp"

namespace gradwire::membership {

void Membership::meet(Id who, Time now) {
  known_[who].met = now;
  known_[who].become_known();
}

// A process that never speaks, as on a host that was lost before, is out of reach after some time.
void Membership::wait_among(std::vector<Id> others) {
  for (const Id who : others) {
    std::optional<Time>& met = known_[who].met;
    met = met.value_or(lived_);
  }
  notified_of_wait_ = std::move(others);
}

void Membership::record_left_out(const MembershipMessage& message) {
  for (const Id who : message.gone) {
    if (who != known_.self && !known_.member(who)) {
      known_[who].gone = true;
    }
  }
}

void Membership::receive_wait(const MembershipMessage& message, Time now) {
  const Id who = message.from;
  meet(who, now);
  const bool is_told =
      known_.of(who).at_start() || std::ranges::find(message.known, known_.self) != message.known.end();
  const std::vector<Id> mine = known_.gone();
  ProcessRecord& process = known_[who];
  const bool again = !process.acknowledged || now - *process.acknowledged >= kBeatsOfWaiting * known_.settings.beat;
  if (!is_told || again || !std::ranges::includes(message.gone, mine)) {
    process.acknowledged = now;
    send(who, this->message(MembershipMessage::Kind::knows));
  }
  if (!expelled_ && !known_.member(who)) {
    Ids ended;
    std::ranges::transform(message.dead, std::inserter(ended, ended.end()), &ProcessEnd::who);
    process.say_waits(now, std::move(ended), {message.known.begin(), message.known.end()});
    advance(now);
  }
}

std::vector<Id> Membership::unaware() const {
  std::vector<Id> ids;
  std::ranges::copy_if(notified_of_wait_, std::back_inserter(ids), [&](Id who) {
    const ProcessRecord& process = known_.of(who);
    return who != known_.self && !process.has_ended() && !process.knows_of_wait && !process.is_waiting() &&
           !process.gone;
  });
  return ids;
}

// A spare cannot know whether a process that has never spoken has come so far. A joining process was let in by all.
bool Membership::out_of_reach(Id who) const {
  const ProcessRecord& process = known_.of(who);
  const auto for_long = [&](std::optional<Time> since) {
    return since && lived_ - *since >= known_.settings.silent_after;
  };
  return for_long(process.cut) || for_long(process.spoke) ||
         (!known_.of(known_.self).at_start() && !process.spoke && for_long(process.met));
}

bool Membership::alone() const {
  const Ids all_ended = known_.which([](Id, const ProcessRecord& process) { return process.has_ended(); });
  return known_.world.members.empty() && std::ranges::all_of(notified_of_wait_, [&](Id who) {
           return who == known_.self || known_.has_ended(who) || known_.of(who).gone || out_of_reach(who) ||
                  known_.waits_knowing(who, all_ended);
         });
}

// The lowest member begins this change, after a step was delivered, so that each change is worth a step and all members
// hold the same.
void Membership::grow(Time now) {
  const std::size_t size = known_.world.members.size();
  if (agreeing() || known_.world.members.front() != known_.self || delivered_ == entered_ ||
      known_.has_to_tell_joiners() || !known_.all_have_spoken()) {
    return;
  }
  if (std::ranges::any_of(
          known_.all(), [&](const auto& one) { return one.second.let_in && known_.may_come(one.first, size, now); })) {
    begin(now);
    send_all(suspicion(now));
  }
}

std::vector<Id> Membership::awaited_newcomers() const {
  const Ids dead = known_.dead_members();
  return leads() && known_.enough({known_.self}, dead) && !known_.quorum({known_.self}, dead)
             ? known_.possibly_taken_in(dead)
             : std::vector<Id>();
}

void Membership::announce_wait(Time now) {
  if (expelled_ || (beaten_ != Time::min() && now - beaten_ < known_.settings.beat)) {
    return;
  }
  beaten_ = now;
  MembershipMessage said = message(MembershipMessage::Kind::waits);
  said.dead = known_.ends(known_.which([](Id, const ProcessRecord& process) { return process.has_ended(); }));
  said.known = to_list(known_.which([](Id, const ProcessRecord& process) { return process.knows_of_wait; }));
  said.gone = known_.gone();
  for (const Id who : notified_of_wait_) {
    const ProcessRecord& process = known_.of(who);
    // A message to a process that cannot be reached would be kept for it.
    if (who != known_.self && !process.has_ended() && !process.gone && !process.cut) {
      send(who, said);
    }
  }
}

// A joining process is told once all previous members know of it, because nobody asks it what was decided.
void Membership::tell_joiners() {
  if (expelled_ || !known_.has_to_tell_joiners()) {
    return;
  }
  const bool all = std::ranges::all_of(known_.world.members, [&](Id who) {
    const ProcessRecord& process = known_.of(who);
    return process.place != Place::member || who == known_.self || process.has_ended() || process.here.present;
  });
  if (!all) {
    return;
  }
  MembershipMessage said = message(MembershipMessage::Kind::decided);
  said.decision = latest_;
  for (const Id who : known_.world.members) {
    if (known_[who].place == Place::joining) {
      known_[who].be_told();
      send(who, said);
    }
  }
}

}  // namespace gradwire::membership
