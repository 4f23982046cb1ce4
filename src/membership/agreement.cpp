// How members agree on the next world: ballots, proposals and decisions.
#include <algorithm>
#include <ranges>
#include <utility>

#include "membership/constants.hpp"
#include "membership/membership.hpp"

namespace gradwire::membership {

// From here on a step of this epoch is only delivered if the decision includes it.
void Membership::begin(Time now) {
  if (agreeing()) {
    return;
  }
  agreeing_since_ = now;
  phase_ = Phase::following;
  const Ids watching = known_.neighbours(false);
  for (const Id who : known_.world.members) {
    if (!watching.contains(who)) {
      known_[who].here.heard = now;  // it owed no sign of life until now
    }
  }
  beaten_ = Time::min();
}

// Takes the step of the agreement that is possible with what is known now.
void Membership::advance(Time now) {
  const bool may_lead = now >= waits_until_ || known_.has_ended(promised_.by);
  const bool is_its_turn = phase_ == Phase::following && may_lead && known_.leader(now) == known_.self;
  const bool knows_more =
      leads() && known_.dead_members() != ballot_dead_;  // this process knows of more ends than those that answered
  if (is_its_turn || knows_more) {
    begin_ballot(now);
  } else if (phase_ == Phase::preparing) {
    propose_if_answered(now);
  } else if (phase_ == Phase::proposing) {
    decide_if_accepted(now);
  }
}

MembershipMessage Membership::promise(Time now) const {
  MembershipMessage said = message(MembershipMessage::Kind::promise);
  said.ballot = promised_;
  said.step = std::max(delivered_, told_);
  said.dead = known_.ends_of_members();
  for (const Id who : known_.world.members) {
    said.ready.push_back(known_.of(who).here.ready);
  }
  for (const Id who :
       known_.world.members) {  // reported if it happened again without a step in between, or if the process lies
    const ProcessRecord& process = known_.of(who);
    const bool for_long = !process.cut || now - *process.cut >= known_.settings.silent_after;
    if ((process.was_missed && process.here.missed) || process.here.distrusted ||
        (process.was_unheard && known_.unheard(who, now) && for_long)) {
      said.silent.push_back(who);
    }
  }
  said.accepted = accepted_;
  said.decision = value_;
  return said;
}

void Membership::begin_ballot(Time now) {
  phase_ = Phase::preparing;
  promised_ = {promised_.round + 1, known_.self};
  ballot_dead_ = known_.dead_members();
  forget_answers();
  known_[known_.self].give_promise(promise(now));
  began_ = now;
  send_ballot(now);
  propose_if_answered(now);
}

// Sends the ballot to the members that have not answered it.
void Membership::send_ballot(Time now) {
  sent_ = now;
  MembershipMessage said =
      message(phase_ == Phase::preparing ? MembershipMessage::Kind::prepare : MembershipMessage::Kind::accept);
  said.ballot = promised_;
  said.dead = known_.ends(ballot_dead_);
  if (phase_ == Phase::proposing) {
    said.decision = value_;
  }
  for (const Id who : known_.world.members) {
    const ProcessRecord& process = known_.of(who);
    if (process.here.answer == Answer::none && !process.has_ended()) {
      send(who, said);
    }
  }
}

void Membership::follow(const MembershipMessage& ballot, Time now) {
  for (const ProcessEnd& one : ballot.dead) {  // a process that answers must know the ends on which the ballot relies
    if (one.who != known_.self && known_.member(one.who)) {
      note_end(one);
    }
  }
  phase_ = Phase::following;
  promised_ = ballot.ballot;
  waits_until_ = now + kBeatsOfLeader * known_.settings.beat;
}

void Membership::answer_prepare(const MembershipMessage& message, Time now) {
  begin(now);
  if (message.ballot < promised_) {
    MembershipMessage said = this->message(MembershipMessage::Kind::refuse);
    said.ballot = promised_;
    send(message.from, std::move(said));
    return;
  }
  follow(message, now);
  send(message.from, promise(now));
}

void Membership::answer_accept(const MembershipMessage& message, Time now) {
  begin(now);
  if (message.ballot < promised_) {
    MembershipMessage said = this->message(MembershipMessage::Kind::refuse);
    said.ballot = promised_;
    send(message.from, std::move(said));
    return;
  }
  follow(message, now);
  accepted_ = message.ballot;
  value_ = message.decision;
  MembershipMessage said = this->message(MembershipMessage::Kind::accepted);
  said.ballot = message.ballot;
  send(message.from, std::move(said));
}

// Waits for every member that is not missed, since a member that answers is in the next world.
void Membership::propose_if_answered(Time now) {
  if (phase_ != Phase::preparing) {
    return;
  }
  const bool is_too_early =
      now - began_ < known_.settings.silent_after;  // for members that hear nothing, though they are heard
  const bool waits =
      is_too_early && std::ranges::any_of(known_.world.members, [&](Id who) {
        return known_.of(who).here.answer == Answer::none && !known_.has_ended(who) && !known_.silent(who, now);
      });
  if (waits || !known_.quorum(known_.answered(), ballot_dead_)) {
    return;
  }
  phase_ = Phase::proposing;
  value_ = choose(now);
  accepted_ = promised_;
  forget_answers();
  known_[known_.self].accept();
  send_ballot(now);
  decide_if_accepted(now);
}

Decision Membership::choose(Time now) const {
  const MembershipMessage* latest = nullptr;
  const Ids answered = known_.answered();
  for (const Id who : answered) {
    const MembershipMessage& said = known_.of(who).here.promise;
    if (said.decision && (latest == nullptr || said.accepted > latest->accepted)) {
      latest = &said;
    }
  }
  if (latest != nullptr) {
    return *latest->decision;  // that decision may have been made
  }
  Ids next;
  std::uint64_t delivered = told_;
  std::vector<std::uint64_t> ready(known_.world.members.size());
  for (const Id who : answered) {
    const MembershipMessage& said = known_.of(who).here.promise;
    if (!known_.has_ended(who)) {
      next.insert(who);
    }
    delivered = std::max(delivered, said.step);
    for (std::size_t i = 0; i < std::min(ready.size(), said.ready.size()); ++i) {
      ready[i] = std::max(ready[i], said.ready[i]);
    }
  }
  // This includes a step that all held, even if no survivor knew that: a member that ended may have delivered it.
  delivered = std::max(delivered, *std::min_element(ready.begin(), ready.end()));
  part(next);
  take_in(next, now);
  return {{known_.world.epoch + 1, to_list(next)}, delivered};
}

// Members that were in the world and hold what steps need remain half of all, so that every majority contains one.
void Membership::take_in(Ids& next, Time now) const {
  const auto fresh = static_cast<std::size_t>(std::ranges::count_if(next, [&](Id who) {
    return known_.of(who).joined_after == delivered_;  // no step was delivered since
  }));
  const std::size_t hold = next.size() - fresh;
  std::size_t places = hold > fresh ? hold - fresh : 0;
  for (const auto& [who, process] : known_.all()) {
    if (places > 0 && process.let_in && known_.may_come(who, next.size(), now)) {
      places -= next.insert(who).second ? 1 : 0;
    }
  }
}

// If two members cannot hear each other, one must go: the one that most others cannot hear, among equals the higher.
void Membership::part(Ids& next) const {
  for (;;) {
    std::map<Id, std::size_t> apart;
    for (const Id who : known_.answered()) {
      for (const Id other : known_.of(who).here.promise.silent) {
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
  if (phase_ == Phase::proposing && known_.quorum(known_.answered(), ballot_dead_)) {
    const Decision decision = *value_;
    MembershipMessage said = message(MembershipMessage::Kind::decided);
    said.decision = decision;
    send_all(said);
    decide(decision, now);
  }
}

void Membership::decide(const Decision& decision, Time now) {
  for (auto& [who, process] : known_.all()) {
    process.was_unheard = process.is_member() && known_.unheard(who, now);
    process.was_missed = process.here.missed || process.here.misses_self;
  }
  place_all(decision, now);
  // A process that is in two worlds in a row has answered in the first. If it was left out of one in between, it was
  // taken for a waiting process, by a message from before it learnt that it was a member.
  const bool left_out = !known_.world.members.empty() && decision.world.epoch > known_.world.epoch + 1;
  latest_ = decision;
  known_.world = decision.world;
  forget_world();
  for (const Id who : known_.world.members) {
    known_[who].here.heard = now;
  }
  beaten_ = now;
  if (!known_.member(known_.self) || left_out) {
    expelled_ = true;
    return;
  }
  epoch_entered_ = known_.world.epoch;
  delivered_ = entered_ = std::max(delivered_, decision.delivered);
  confirmed_ = delivered_;  // a decision is final
  asked_ = 0;
  for (const auto& [who, process] : known_.all()) {  // processes that ended after the world was chosen
    if (process.has_ended()) {
      hear_of_end(ProcessEnd(process.end), now);
    }
  }
  if (known_.has_to_tell_joiners() && !agreeing()) {
    send_all(message(MembershipMessage::Kind::beat));  // so that all soon know that all are here
  }
  tell_joiners();
}

void Membership::place_all(const Decision& decision, Time now) {
  const std::vector<Id>& next = decision.world.members;
  const bool tells = known_.member(known_.self);
  for (const Id who : known_.world.members) {
    if (std::ranges::find(next, who) == next.end()) {
      known_[who].leave(now);
    }
  }
  for (const Id who : next) {
    ProcessRecord& process = known_[who];
    if (process.is_member()) {
      process.stay();
    } else {
      process.join(tells, std::max(delivered_, decision.delivered));
    }
    if (who != known_.self) {
      process.become_known();
    }
  }
}

void Membership::forget_answers() {
  for (const Id who : known_.world.members) {
    known_[who].forget_answer();
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
  for (auto& [who, process] : known_.all()) {
    process.forget_world();
  }
}

}  // namespace gradwire::membership
