// Processes that cannot be heard or have ended, and what others say about that.
#include <algorithm>
#include <iterator>
#include <utility>

#include "membership/constants.hpp"
#include "membership/membership.hpp"

namespace gradwire::membership {

// Returns the time by which all times are measured. While this process was stopped, the others may have been stopped,
// too, or have spoken without being heard yet. So that time says nothing about them, and their silence before it is
// forgotten as well.
Time Membership::time_lived(Time clock) {
  const Time passed = clock - std::exchange(called_, clock);
  if (passed >= Time(0) && passed <= kBeatsOfSleep * known_.settings.beat) {
    return lived_ += passed;
  }
  for (auto& [who, process] : known_.all()) {
    process.forget_silence(lived_);
  }
  agreeing_since_ = began_ = lived_;
  return lived_;
}

void Membership::note_end(const ProcessEnd& who) {
  ProcessRecord& process = known_[who.who];
  process.note_end(who, known_.world.epoch);
  if (process.life == Life::dead && process.end.epoch == known_.world.epoch && process.end.step <= most_delivered()) {
    told_ = std::max(told_, process.end.step);  // the ended process relied on that step
  }
}

void Membership::dead(const ProcessEnd& who, Time clock) { hear_of_end(who, time_lived(clock)); }

void Membership::hear_of_end(const ProcessEnd& who, Time now) {
  if (who.who == known_.self) {
    return;
  }
  note_end(who);
  if (!expelled_ && known_.member(known_.self) && known_.member(who.who)) {
    confirm_if_answered();
    miss(now);
  }
}

void Membership::miss(Time now) {
  begin(now);
  send_all(suspicion(now));
  advance(now);
}

void Membership::cut(Id who, Time clock) {
  const Time now = time_lived(clock);
  if (who == known_.self || known_.has_ended(who)) {
    return;
  }
  std::optional<Time>& since = known_[who].cut;
  since = since.value_or(now);
  if (!expelled_ && known_.member(known_.self) && known_.member(who)) {
    miss(now);
  }
}

void Membership::missed(Id who, Time clock) {
  const Time now = time_lived(clock);
  if (expelled_ || who == known_.self || !known_.member(who) || known_.has_ended(who)) {
    return;
  }
  known_[who].here.missed = true;
  miss(now);
}

void Membership::damaged(Id who, Time clock) {
  const Time now = time_lived(clock);
  if (!expelled_ && known_.member(known_.self) && known_.member(who) && !known_.has_ended(who)) {
    miss(now);  // the lost message may be one that a step waits for
  }
}

void Membership::distrust(Id who, const std::string& why, Time clock) {
  const Time now = time_lived(clock);
  if (expelled_ || who == known_.self || !known_.member(known_.self) || !known_.member(who) || known_.has_ended(who)) {
    return;
  }
  if (!std::exchange(known_[who].here.distrusted, true)) {
    distrusted_.push_back({who, why});
  }
  miss(now);
}

// Notes members that others say have ended. Such an end counts once nothing comes from the member any more: a live
// member speaks every beat during an agreement.
void Membership::hear_rumours(const MembershipMessage& message, Time now) {
  for (const ProcessEnd& one : message.dead) {
    if (one.who != known_.self && one.who != message.from && known_.member(one.who)) {
      known_[one.who].hear_rumour(one, now);
    }
  }
}

void Membership::believe_rumours(Time now) {
  for (const auto& [who, process] : known_.all()) {  // the agreement may end with each of them
    if (agreeing() && process.life == Life::rumoured &&
        now - std::max(process.rumoured, agreeing_since_) >= kBeatsOfRumour * known_.settings.beat) {
      hear_of_end(ProcessEnd(process.end), now);
    }
  }
}

// It is said again and again during an agreement, as a sign of life: a process that enters the epoch late would not
// know.
MembershipMessage Membership::suspicion(Time now) const {
  MembershipMessage said = message(MembershipMessage::Kind::suspect);
  said.dead = known_.ends_of_members();
  said.silent = to_list(known_.which([&](Id who, const ProcessRecord& process) {
    return process.is_member() && (process.here.missed || process.here.distrusted || known_.unheard(who, now));
  }));
  return said;
}

bool Membership::hopeless() const {
  if (!agreeing() || expelled_) {
    return false;
  }
  const Time patience = known_.settings.silent_after + kBeatsBeyondHope * known_.settings.beat;
  const Ids dead = known_.dead_members();
  const Ids reached = known_.which([&](Id who, const ProcessRecord& process) {
    return who == known_.self ||
           (process.is_member() && !process.has_ended() && lived_ - process.here.heard < patience);
  });
  // If a member ended in a later world, another one may know of that world, and that this process belongs to it.
  const bool may_be_told = reached.size() > 1 && went_on().has_value();
  if (!known_.enough(reached, dead) && !may_be_told) {
    return true;
  }
  return !known_.quorum(reached, dead) &&
         lived_ - agreeing_since_ >= patience;  // waiting processes may say what they know
}

std::optional<ProcessEnd> Membership::went_on() const {
  for (const Id who : known_.world.members) {
    if (const ProcessRecord& process = known_.of(who); process.has_ended() && process.end.epoch > known_.world.epoch) {
      return process.end;
    }
  }
  return std::nullopt;
}

}  // namespace gradwire::membership
