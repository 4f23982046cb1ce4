// How members agree on the next world: ballots, what is proposed, what is decided.
#include <algorithm>
#include <ranges>
#include <utility>

#include "membership/constants.hpp"
#include "membership/membership.hpp"

namespace gradwire::membership {

// More than half of the members, or half with the lowest, the ended ones counted as members; or all that have not
// ended. Two of the first kind share a process. One of the first kind of which a process lives shares it with one of
// the last kind; and what those say who have all ended is no longer heard by who answered (`ballot_dead_`). (Counting
// the ended ones out of the half would be wrong: 3 of 5 may have left out two, of them two may end, and the two left
// out would be a majority of three.) `dead` have never entered a later world, so nobody has gone on with them.
bool Membership::enough(const Ids& answered, const Ids& dead) const {
  std::size_t with = 0;
  bool all = true;
  for (const Id who : world_.members) {
    with += answered.contains(who) ? 1 : 0;
    all = all && (answered.contains(who) || dead.contains(who));
  }
  const std::size_t size = world_.members.size();
  return all || 2 * with > size || (2 * with == size && answered.contains(world_.members.front()));
}

// Where it is not known which world the ended ones had entered, others may have gone on with one of them, and a process
// that waited.
bool Membership::quorum(const Ids& answered, const Ids& dead) const {
  const bool told = std::ranges::all_of(dead, [&](Id who) { return ended_.at(who).epoch > 0; });
  return enough(answered, told || unsure(dead).empty() ? dead : Ids());
}

// From here on nothing of this epoch is delivered but what is decided.
void Membership::begin(Time now) {
  if (agreeing_) {
    return;
  }
  agreeing_ = true;
  agreeing_since_ = now;
  phase_ = Phase::following;
  const Ids watching = watched();
  for (auto& [who, heard] : heard_) {
    if (!watching.contains(who)) {
      heard = now;  // it owed no sign of life until now
    }
  }
  beaten_ = Time::min();
}

// What can be done now, by what is known now.
void Membership::advance(Time now) {
  const bool may_lead = now >= waits_until_ || ended(promised_.by);
  const bool leads = phase_ == Phase::following && may_lead && leader(now) == self_;
  const bool knows_more = phase_ != Phase::following && dead_ != ballot_dead_;  // than who answered
  if (agreeing_ && (leads || knows_more)) {
    begin_ballot(now);
  } else if (phase_ == Phase::preparing) {
    propose_if_answered(now);
  } else if (phase_ == Phase::proposing) {
    decide_if_accepted(now);
  }
}

Message Membership::promise(Time now) const {
  Message said = message(Message::Kind::promise);
  said.ballot = promised_;
  said.step = std::max(delivered_, told_);
  said.dead = ends(ended_members());
  for (const Id who : world_.members) {
    const auto found = ready_.find(who);
    said.ready.push_back(found == ready_.end() ? 0 : found->second);
  }
  for (const Id who : world_.members) {  // again, and no step in between; or it lies
    const auto cut = cut_.find(who);
    const bool for_long = cut == cut_.end() || now - cut->second >= settings_.silent_after;
    if ((missed_before_.contains(who) && missed_.contains(who)) || distrusted_.contains(who) ||
        (unheard_before_.contains(who) && unheard(who, now) && for_long)) {
      said.silent.push_back(who);
    }
  }
  said.accepted = accepted_;
  said.decision = value_;
  return said;
}

void Membership::begin_ballot(Time now) {
  phase_ = Phase::preparing;
  promised_ = {promised_.round + 1, self_};
  promises_.clear();
  acceptances_.clear();
  ballot_dead_ = dead_;
  promises_[self_] = promise(now);
  began_ = now;
  send_ballot(now);
  propose_if_answered(now);
}

// To those that have not answered it.
void Membership::send_ballot(Time now) {
  sent_ = now;
  Message said = message(phase_ == Phase::preparing ? Message::Kind::prepare : Message::Kind::accept);
  said.ballot = promised_;
  said.dead = ends(ballot_dead_);
  if (phase_ == Phase::proposing) {
    said.decision = value_;
  }
  for (const Id who : world_.members) {
    const bool answered = phase_ == Phase::preparing ? promises_.contains(who) : acceptances_.contains(who);
    if (!answered && !ended(who)) {
      send(who, said);
    }
  }
}

void Membership::follow(const Message& ballot, Time now) {
  for (const Ended& one : ballot.dead) {  // who answers must know what the ballot relies on
    if (one.who != self_ && member(one.who)) {
      note_end(one);
    }
  }
  phase_ = Phase::following;
  promised_ = ballot.ballot;
  waits_until_ = now + kBeatsOfLeader * settings_.beat;
}

void Membership::answer_prepare(const Message& message, Time now) {
  begin(now);
  if (message.ballot < promised_) {
    Message said = this->message(Message::Kind::refuse);
    said.ballot = promised_;
    send(message.from, std::move(said));
    return;
  }
  follow(message, now);
  send(message.from, promise(now));
}

void Membership::answer_accept(const Message& message, Time now) {
  begin(now);
  if (message.ballot < promised_) {
    Message said = this->message(Message::Kind::refuse);
    said.ballot = promised_;
    send(message.from, std::move(said));
    return;
  }
  follow(message, now);
  accepted_ = message.ballot;
  value_ = message.decision;
  Message said = this->message(Message::Kind::accepted);
  said.ballot = message.ballot;
  send(message.from, std::move(said));
}

// Everybody is waited for who is not missed: who answers is in the next world.
void Membership::propose_if_answered(Time now) {
  if (phase_ != Phase::preparing) {
    return;
  }
  Ids answered;
  for (const Id who : world_.members) {
    if (promises_.contains(who)) {
      answered.insert(who);
    } else if (!ended(who) && !silent(who, now) && now - began_ < settings_.silent_after) {
      return;  // who hears nothing, though it is heard, is waited for as long
    }
  }
  if (!quorum(answered, ballot_dead_)) {
    return;
  }
  phase_ = Phase::proposing;
  value_ = choose(now);
  accepted_ = promised_;
  acceptances_ = {self_};
  send_ballot(now);
  decide_if_accepted(now);
}

Decision Membership::choose(Time now) const {
  const Message* latest = nullptr;
  for (const auto& [who, said] : promises_) {
    if (said.decision && (latest == nullptr || said.accepted > latest->accepted)) {
      latest = &said;
    }
  }
  if (latest != nullptr) {
    return *latest->decision;  // it may have been decided
  }
  Ids next;
  std::uint64_t delivered = told_;
  std::vector<std::uint64_t> ready(world_.members.size());
  for (const auto& [who, said] : promises_) {
    if (!ended(who)) {
      next.insert(who);
    }
    delivered = std::max(delivered, said.step);
    for (std::size_t i = 0; i < std::min(ready.size(), said.ready.size()); ++i) {
      ready[i] = std::max(ready[i], said.ready[i]);
    }
  }
  // Also what all held, though nobody of those who are left knew of all: one who ended may have delivered it.
  delivered = std::max(delivered, *std::min_element(ready.begin(), ready.end()));
  part(next);
  take_in(next, now);
  return {{world_.epoch + 1, to_list(next)}, delivered};
}

// Those that were in and hold what steps need remain half of all, so that no majority is without one of them.
void Membership::take_in(Ids& next, Time now) const {
  const auto fresh =
      static_cast<std::size_t>(std::count_if(next.begin(), next.end(), [&](Id who) { return fresh_.contains(who); }));
  const std::size_t hold = next.size() - fresh;
  std::size_t places = hold > fresh ? hold - fresh : 0;
  for (const Id who : let_in_) {
    if (places > 0 && may_come(who, next.size(), now)) {
      places -= next.insert(who).second ? 1 : 0;
    }
  }
}

// Of two that cannot hear each other one must go: the one that most others cannot hear, of equal ones the higher.
void Membership::part(Ids& next) const {
  for (;;) {
    std::map<Id, std::size_t> apart;
    for (const auto& [who, said] : promises_) {
      for (const Id other : said.silent) {
        if (next.contains(who) && next.contains(other)) {
          ++apart[who];
          ++apart[other];
        }
      }
    }
    if (apart.empty()) {
      return;
    }
    next.erase(std::max_element(apart.begin(), apart.end(), [](const auto& a, const auto& b) {
                 return std::pair(a.second, a.first) < std::pair(b.second, b.first);
               })->first);
  }
}

void Membership::decide_if_accepted(Time now) {
  if (phase_ == Phase::proposing && quorum(acceptances_, ballot_dead_)) {
    const Decision decision = *value_;
    Message said = message(Message::Kind::decided);
    said.decision = decision;
    send_all(said);
    decide(decision, now);
  }
}

void Membership::decide(const Decision& decision, Time now) {
  unheard_before_.clear();
  for (const Id who : world_.members) {
    if (unheard(who, now)) {
      unheard_before_.insert(who);
    }
  }
  missed_before_ = std::exchange(missed_by_, {});
  missed_before_.merge(missed_);
  missed_.clear();
  note_who_comes_and_goes(decision, now);
  // Who is in two worlds one after the other has answered in the first. Left out of one in between, it was taken for
  // one that waits, by a word of before it learnt that it was in.
  const bool left_out = !world_.members.empty() && decision.world.epoch > world_.epoch + 1;
  latest_ = decision;
  world_ = decision.world;
  forget_epoch();
  for (const Id who : world_.members) {
    heard_[who] = now;
  }
  beaten_ = now;
  if (!member(self_) || left_out) {
    expelled_ = true;
    news_.emplace_back(Expelled{world_.epoch});
    return;
  }
  epoch_entered_ = world_.epoch;
  delivered_ = entered_ = std::max(delivered_, decision.delivered);
  confirmed_ = delivered_;  // a decision is final
  asked_ = 0;
  news_.emplace_back(Changed{decision});
  for (const auto& [who, end] : std::map<Id, Ended>(ended_)) {  // who ended after the world was chosen
    hear_of_end(end, now);
  }
  if (!joiners_not_notified_.empty() && !agreeing_) {
    send_all(message(Message::Kind::beat));  // so that all soon know of all
  }
  tell_joiners();
}

void Membership::note_who_comes_and_goes(const Decision& decision, Time now) {
  // A process that joins is told once all that were in know of it: nobody asks it what was decided.
  joiners_not_notified_.clear();
  to_hear_.clear();
  if (std::max(delivered_, decision.delivered) > entered_) {
    fresh_.clear();
  }
  const bool joins = !member(self_);
  for (const Id who : decision.world.members) {
    waiting_.erase(who);
    if (!at_start(who) && who != self_) {
      newcomers_.insert(who);
    }
    if (!member(who)) {
      fresh_.insert(who);
      if (!joins) {
        joiners_not_notified_.insert(who);
      }
    } else if (who != self_) {
      to_hear_.insert(who);
    }
  }
  for (const Id who : world_.members) {
    if (std::ranges::find(decision.world.members, who) == decision.world.members.end()) {
      met_[who] = now;
      if (in_epoch_.contains(who)) {  // others may not have learnt that they were in, and still wait
        gone_.insert(who);
      }
    }
  }
}

void Membership::forget_epoch() {
  agreeing_ = false;
  phase_ = Phase::following;
  promised_ = {};
  accepted_ = {};
  value_.reset();
  promises_.clear();
  acceptances_.clear();
  ballot_dead_.clear();
  waits_until_ = {};
  rumours_.clear();
  dead_.clear();
  doubts_.clear();
  distrusted_.clear();
  ready_.clear();
  told_ = 0;
  delivered_by_.clear();
  in_epoch_.clear();
  heard_.clear();
}

}  // namespace gradwire::membership
