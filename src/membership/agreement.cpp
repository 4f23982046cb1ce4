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
  const bool told = std::ranges::all_of(dead, [&](Id who) { return record_of(who).end.epoch > 0; });
  return enough(answered, told || unsure(dead).empty() ? dead : Ids());
}

// From here on nothing of this epoch is delivered but what is decided.
void Membership::begin(Time now) {
  if (agreeing()) {
    return;
  }
  agreeing_since_ = now;
  phase_ = Phase::following;
  const Ids watching = watched();
  for (const Id who : world_.members) {
    if (!watching.contains(who)) {
      processes_[who].here.heard = now;  // it owed no sign of life until now
    }
  }
  beaten_ = Time::min();
}

// What can be done now, by what is known now.
void Membership::advance(Time now) {
  const bool may_lead = now >= waits_until_ || ended(promised_.by);
  const bool is_its_turn = phase_ == Phase::following && may_lead && leader(now) == self_;
  const bool knows_more = leads() && dead_members() != ballot_dead_;  // than those that answered
  if (is_its_turn || knows_more) {
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
  said.dead = ends_of_members();
  for (const Id who : world_.members) {
    said.ready.push_back(record_of(who).here.ready);
  }
  for (const Id who : world_.members) {  // again, and no step in between; or it lies
    const ProcessRecord& process = record_of(who);
    const bool for_long = !process.cut || now - *process.cut >= settings_.silent_after;
    if ((process.was_missed && process.here.missed) || process.here.distrusted ||
        (process.was_unheard && unheard(who, now) && for_long)) {
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
  ballot_dead_ = dead_members();
  forget_answers();
  processes_[self_].give_promise(promise(now));
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
    const ProcessRecord& process = record_of(who);
    if (process.here.answer == Answer::none && !process.has_ended()) {
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
  const bool is_too_early =
      now - began_ < settings_.silent_after;  // for those that hear nothing, though they are heard
  const bool waits = is_too_early && std::ranges::any_of(world_.members, [&](Id who) {
                       return record_of(who).here.answer == Answer::none && !ended(who) && !silent(who, now);
                     });
  if (waits || !quorum(answered(), ballot_dead_)) {
    return;
  }
  phase_ = Phase::proposing;
  value_ = choose(now);
  accepted_ = promised_;
  forget_answers();
  processes_[self_].accept();
  send_ballot(now);
  decide_if_accepted(now);
}

Decision Membership::choose(Time now) const {
  const Message* latest = nullptr;
  const Ids answered = this->answered();
  for (const Id who : answered) {
    const Message& said = record_of(who).here.promise;
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
  for (const Id who : answered) {
    const Message& said = record_of(who).here.promise;
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
  const auto fresh = static_cast<std::size_t>(std::ranges::count_if(next, [&](Id who) {
    return record_of(who).joined_after == delivered_;  // no step was delivered since
  }));
  const std::size_t hold = next.size() - fresh;
  std::size_t places = hold > fresh ? hold - fresh : 0;
  for (const auto& [who, process] : processes_) {
    if (places > 0 && process.let_in && may_come(who, next.size(), now)) {
      places -= next.insert(who).second ? 1 : 0;
    }
  }
}

// Of two that cannot hear each other one must go: the one that most others cannot hear, of equal ones the higher.
void Membership::part(Ids& next) const {
  for (;;) {
    std::map<Id, std::size_t> apart;
    for (const Id who : answered()) {
      for (const Id other : record_of(who).here.promise.silent) {
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
  if (phase_ == Phase::proposing && quorum(answered(), ballot_dead_)) {
    const Decision decision = *value_;
    Message said = message(Message::Kind::decided);
    said.decision = decision;
    send_all(said);
    decide(decision, now);
  }
}

void Membership::decide(const Decision& decision, Time now) {
  for (auto& [who, process] : processes_) {
    process.was_unheard = process.is_member() && unheard(who, now);
    process.was_missed = process.here.missed || process.here.misses_self;
  }
  place_all(decision, now);
  // Who is in two worlds one after the other has answered in the first. Left out of one in between, it was taken for
  // one that waits, by a word of before it learnt that it was in.
  const bool left_out = !world_.members.empty() && decision.world.epoch > world_.epoch + 1;
  latest_ = decision;
  world_ = decision.world;
  forget_world();
  for (const Id who : world_.members) {
    processes_[who].here.heard = now;
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
  for (const auto& [who, process] : processes_) {  // who ended after the world was chosen
    if (process.has_ended()) {
      hear_of_end(Ended(process.end), now);
    }
  }
  if (has_to_tell_joiners() && !agreeing()) {
    send_all(message(Message::Kind::beat));  // so that all soon know of all
  }
  tell_joiners();
}

void Membership::place_all(const Decision& decision, Time now) {
  const std::vector<Id>& next = decision.world.members;
  const bool tells = member(self_);
  for (const Id who : world_.members) {
    if (std::ranges::find(next, who) == next.end()) {
      processes_[who].leave(now);
    }
  }
  for (const Id who : next) {
    ProcessRecord& process = processes_[who];
    if (process.is_member()) {
      process.stay();
    } else {
      process.join(tells, std::max(delivered_, decision.delivered));
    }
    if (who != self_) {
      process.become_known();
    }
  }
}

Ids Membership::answered() const {
  return which([](Id, const ProcessRecord& process) { return process.here.answer != Answer::none; });
}

void Membership::forget_answers() {
  for (const Id who : world_.members) {
    processes_[who].forget_answer();
  }
}

void Membership::forget_world() {
  phase_ = Phase::delivering;
  promised_ = {};
  accepted_ = {};
  value_.reset();
  ballot_dead_.clear();
  waits_until_ = {};
  told_ = 0;
  for (auto& [who, process] : processes_) {
    process.forget_world();
  }
}

}  // namespace gradwire::membership
