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
  for (auto& [who, heard] : heard_) {
    heard = lived_;
  }
  for (auto& [who, waiting] : waiting_) {
    waiting.said = lived_;
  }
  for (auto& [who, met] : met_) {
    met = lived_;
  }
  for (auto& [who, spoken] : spoken_) {
    spoken = lived_;
  }
  for (auto& [who, rumour] : rumours_) {
    rumour.since = lived_;
  }
  agreeing_since_ = began_ = lived_;
  return lived_;
}

bool Membership::quiet(Id who, Time now) const {
  const Time heard = now - heard_.at(who);
  const auto doubted = [&] {
    return std::ranges::any_of(doubts_, [&](const auto& one) { return !ended(one.first) && one.second.contains(who); });
  };
  return heard >= settings_.silent_after || (heard >= kBeatsOfDoubt * settings_.beat && doubted());
}

bool Membership::unheard(Id who, Time now) const {
  return who != self_ && !ended(who) && (cut_.contains(who) || quiet(who, now));
}

// Nobody waits for a silent process, or for its ballot. Whom another member still hears is none before it has been
// silent here for `silent_after`, however many links of it are broken.
bool Membership::silent(Id who, Time now) const {
  if (!unheard(who, now)) {
    return false;
  }
  return now - heard_.at(who) >= settings_.silent_after || std::ranges::all_of(world_.members, [&](Id other) {
           const auto doubts = doubts_.find(other);
           return other == self_ || other == who || ended(other) || unheard(other, now) ||
                  (doubts != doubts_.end() && doubts->second.contains(who));
         });
}

// A link that was already broken in the previous world is reported nowhere else.
bool Membership::misses_anybody(Time now) const {
  const Ids watching = watched();
  return std::ranges::any_of(watching, [&](Id who) { return silent(who, now); }) ||
         std::ranges::any_of(cut_, [&](const auto& one) { return member(one.first) && silent(one.first, now); });
}

Id Membership::leader(Time now) const {
  const auto found = std::ranges::find_if(world_.members, [&](Id who) { return !ended(who) && !silent(who, now); });
  return found == world_.members.end() ? self_ : *found;
}

std::vector<Ended> Membership::ends(const Ids& of) const {
  std::vector<Ended> list;
  std::ranges::transform(of, std::back_inserter(list), [&](Id who) { return ended_.at(who); });
  return list;
}

Membership::Ids Membership::ended_members() const {
  Ids found;
  std::ranges::copy_if(world_.members, std::inserter(found, found.end()), [&](Id who) { return ended(who); });
  return found;
}

// Of two reports about one process the one that names the later world counts.
void Membership::note_end(const Ended& who) {
  Ended& known = ended_.try_emplace(who.who, who).first->second;
  if (std::pair(known.epoch, known.step) < std::pair(who.epoch, who.step)) {
    known = who;
  }
  waiting_.erase(who.who);
  rumours_.erase(who.who);
  cut_.erase(who.who);
  if (!member(who.who)) {
    return;
  }
  if (known.epoch > world_.epoch) {
    dead_.erase(who.who);  // the world that it entered may have counted steps that this process has not heard of
    return;
  }
  dead_.insert(who.who);
  if (known.epoch == world_.epoch && known.step <= most_delivered()) {
    told_ = std::max(told_, known.step);  // it relied on it
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
  cut_.try_emplace(who, now);
  if (!expelled_ && member(self_) && member(who)) {
    miss(now);
  }
}

void Membership::missed(Id who, Time clock) {
  const Time now = time_lived(clock);
  if (expelled_ || who == self_ || !member(who) || ended(who)) {
    return;
  }
  missed_.insert(who);
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
  if (distrusted_.insert(who).second) {
    news_.emplace_back(Distrusted{who, why});
  }
  miss(now);
}

// Of a member that others say has ended. It counts once nothing comes of it any more: who lives speaks every beat while
// they agree.
void Membership::hear_rumours(const Message& message, Time now) {
  for (const Ended& one : message.dead) {
    if (one.who != self_ && one.who != message.from && member(one.who) && !ended(one.who)) {
      rumours_.try_emplace(one.who, Rumour{one, now});
    }
  }
}

void Membership::believe_rumours(Time now) {
  if (!agreeing_ || rumours_.empty()) {
    return;
  }
  for (const auto& [who, rumour] : std::map<Id, Rumour>(rumours_)) {
    if (agreeing_ && now - std::max(rumour.since, agreeing_since_) >= kBeatsOfRumour * settings_.beat) {
      hear_of_end(rumour.what, now);
    }
  }
}

// Said again and again while they agree, as a sign of life: who enters the epoch late would not know.
Message Membership::suspicion(Time now) const {
  Message said = message(Message::Kind::suspect);
  said.dead = ends(ended_members());
  Ids silent = missed_;
  silent.insert(distrusted_.begin(), distrusted_.end());
  std::ranges::copy_if(world_.members, std::inserter(silent, silent.end()), [&](Id who) { return unheard(who, now); });
  said.silent = to_list(silent);
  return said;
}

bool Membership::hopeless() const {
  if (!agreeing_ || expelled_) {
    return false;
  }
  const Time patience = settings_.silent_after + kBeatsBeyondHope * settings_.beat;
  Ids reached{self_};
  std::ranges::copy_if(world_.members, std::inserter(reached, reached.end()),
                       [&](Id who) { return !ended(who) && lived_ - heard_.at(who) < patience; });
  // Where a member ended in a later world, another one may know of that world, and that this process belongs to it.
  const bool may_be_told = reached.size() > 1 && went_on().has_value();
  if (!enough(reached, dead_) && !may_be_told) {
    return true;
  }
  return !quorum(reached, dead_) && lived_ - agreeing_since_ >= patience;  // those that wait may say what they know
}

std::optional<Ended> Membership::went_on() const {
  for (const Id who : world_.members) {
    if (const auto found = ended_.find(who); found != ended_.end() && found->second.epoch > world_.epoch) {
      return found->second;
    }
  }
  return std::nullopt;
}

}  // namespace gradwire::membership
