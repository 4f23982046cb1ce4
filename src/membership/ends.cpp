// Who cannot be heard, who has ended, and what others say of that.
#include <algorithm>
#include <iterator>
#include <utility>

#include "membership/constants.hpp"
#include "membership/membership.hpp"

namespace gradwire::membership {

// What all times are measured by. While this process was stopped the others may have been stopped, too, or have spoken
// without being heard yet; so that time says nothing of them, and what they were silent for before is forgotten with
// it.
Time Membership::time_lived(Time clock) {
  const Time passed = clock - std::exchange(called_, clock);
  if (passed >= Time(0) && passed <= kBeatsOfSleep * settings_.beat) {
    return lived_ += passed;
  }
  for (auto& [who, process] : processes_) {
    process.forget_silence(lived_);
  }
  agreeing_since_ = began_ = lived_;
  return lived_;
}

bool Membership::quiet(Id who, Time now) const {
  const Time silence = now - record_of(who).here.heard;
  const auto doubted = [&] {
    return std::ranges::any_of(world_.members,
                               [&](Id other) { return !ended(other) && record_of(other).here.doubts.contains(who); });
  };
  return silence >= settings_.silent_after || (silence >= kBeatsOfDoubt * settings_.beat && doubted());
}

bool Membership::unheard(Id who, Time now) const {
  return who != self_ && !ended(who) && (record_of(who).cut || quiet(who, now));
}

// Nobody waits for a silent process, or for its ballot. Whom another member still hears is none before it has been
// silent here for `silent_after`, however many links of it are broken.
bool Membership::silent(Id who, Time now) const {
  if (!unheard(who, now)) {
    return false;
  }
  return now - record_of(who).here.heard >= settings_.silent_after ||
         std::ranges::all_of(world_.members, [&](Id other) {
           return other == self_ || other == who || ended(other) || unheard(other, now) ||
                  record_of(other).here.doubts.contains(who);
         });
}

// A link that was already broken in the previous world is reported nowhere else.
bool Membership::misses_anybody(Time now) const {
  const Ids watching = watched();
  return std::ranges::any_of(watching, [&](Id who) { return silent(who, now); }) ||
         std::ranges::any_of(world_.members, [&](Id who) { return record_of(who).cut && silent(who, now); });
}

Id Membership::leader(Time now) const {
  const auto found = std::ranges::find_if(world_.members, [&](Id who) { return !ended(who) && !silent(who, now); });
  return found == world_.members.end() ? self_ : *found;
}

std::vector<Ended> Membership::ends(const Ids& of) const {
  std::vector<Ended> list;
  std::ranges::transform(of, std::back_inserter(list), [&](Id who) { return record_of(who).end; });
  return list;
}

std::vector<Ended> Membership::ends_of_members() const {
  return ends(which([](Id, const ProcessRecord& process) { return process.is_member() && process.has_ended(); }));
}

Ids Membership::dead_members() const {
  return which([](Id, const ProcessRecord& process) { return process.life == Life::dead; });
}

void Membership::note_end(const Ended& who) {
  ProcessRecord& process = processes_[who.who];
  process.note_end(who, world_.epoch);
  if (process.life == Life::dead && process.end.epoch == world_.epoch && process.end.step <= most_delivered()) {
    told_ = std::max(told_, process.end.step);  // it relied on it
  }
}

void Membership::dead(const Ended& who, Time clock) { hear_of_end(who, time_lived(clock)); }

void Membership::hear_of_end(const Ended& who, Time now) {
  if (who.who == self_) {
    return;
  }
  note_end(who);
  if (!expelled_ && member(self_) && member(who.who)) {
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
  if (who == self_ || ended(who)) {
    return;
  }
  std::optional<Time>& since = processes_[who].cut;
  since = since.value_or(now);
  if (!expelled_ && member(self_) && member(who)) {
    miss(now);
  }
}

void Membership::missed(Id who, Time clock) {
  const Time now = time_lived(clock);
  if (expelled_ || who == self_ || !member(who) || ended(who)) {
    return;
  }
  processes_[who].here.missed = true;
  miss(now);
}

void Membership::damaged(Id who, Time clock) {
  const Time now = time_lived(clock);
  if (!expelled_ && member(self_) && member(who) && !ended(who)) {
    miss(now);  // it may have been one that a step waits for
  }
}

void Membership::distrust(Id who, const std::string& why, Time clock) {
  const Time now = time_lived(clock);
  if (expelled_ || who == self_ || !member(self_) || !member(who) || ended(who)) {
    return;
  }
  if (!std::exchange(processes_[who].here.distrusted, true)) {
    news_.emplace_back(Distrusted{who, why});
  }
  miss(now);
}

// Of a member that others say has ended. It counts once nothing comes of it any more: who lives speaks every beat while
// they agree.
void Membership::hear_rumours(const Message& message, Time now) {
  for (const Ended& one : message.dead) {
    if (one.who != self_ && one.who != message.from && member(one.who)) {
      processes_[one.who].hear_rumour(one, now);
    }
  }
}

void Membership::believe_rumours(Time now) {
  for (const auto& [who, process] : processes_) {  // the agreement may end with each
    if (agreeing() && process.life == Life::rumoured &&
        now - std::max(process.rumoured, agreeing_since_) >= kBeatsOfRumour * settings_.beat) {
      hear_of_end(Ended(process.end), now);
    }
  }
}

// Said again and again while they agree, as a sign of life: who enters the epoch late would not know.
Message Membership::suspicion(Time now) const {
  Message said = message(Message::Kind::suspect);
  said.dead = ends_of_members();
  said.silent = to_list(which([&](Id who, const ProcessRecord& process) {
    return process.is_member() && (process.here.missed || process.here.distrusted || unheard(who, now));
  }));
  return said;
}

bool Membership::hopeless() const {
  if (!agreeing() || expelled_) {
    return false;
  }
  const Time patience = settings_.silent_after + kBeatsBeyondHope * settings_.beat;
  const Ids dead = dead_members();
  const Ids reached = which([&](Id who, const ProcessRecord& process) {
    return who == self_ || (process.is_member() && !process.has_ended() && lived_ - process.here.heard < patience);
  });
  // Where a member ended in a later world, another one may know of that world, and that this process belongs to it.
  const bool may_be_told = reached.size() > 1 && went_on().has_value();
  if (!enough(reached, dead) && !may_be_told) {
    return true;
  }
  return !quorum(reached, dead) && lived_ - agreeing_since_ >= patience;  // those that wait may say what they know
}

std::optional<Ended> Membership::went_on() const {
  for (const Id who : world_.members) {
    if (const ProcessRecord& process = record_of(who); process.has_ended() && process.end.epoch > world_.epoch) {
      return process.end;
    }
  }
  return std::nullopt;
}

}  // namespace gradwire::membership
