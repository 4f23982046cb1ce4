// Steps, signs of life, and how messages are handled.
#include "membership/membership.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "membership/constants.hpp"

namespace gradwire::membership {
Membership::Membership(Id self, World world, std::uint64_t delivered, MembershipSettings settings, Time now)
    : known_(self, std::move(world), std::move(settings), now),
      waited_(known_.world.members.empty()),
      delivered_(delivered),
      epoch_entered_(known_.world.epoch),
      called_(now),
      lived_(now),
      entered_(delivered),
      beaten_(now) {}

MembershipMessage Membership::message(MembershipMessage::Kind kind) const {
  MembershipMessage message;
  message.kind = kind;
  message.from = known_.self;
  message.epoch = known_.world.epoch;
  message.step = kind == MembershipMessage::Kind::beat ? delivered_ : 0;
  if (kind == MembershipMessage::Kind::beat || kind == MembershipMessage::Kind::knows ||
      kind == MembershipMessage::Kind::decided) {
    message.gone = known_.gone();
  }
  return message;
}

void Membership::send(Id to, MembershipMessage message) { messages_.push_back({to, std::move(message)}); }

void Membership::send_all(const MembershipMessage& message) {
  for (const Id who : known_.world.members) {
    if (who != known_.self && !known_.has_ended(who) && known_.of(who).place != Place::joining) {
      send(who, message);
    }
  }
}

std::vector<Membership::Outgoing> Membership::take_messages() { return std::exchange(messages_, {}); }
std::vector<Distrusted> Membership::take_distrusted() { return std::exchange(distrusted_, {}); }

void Membership::ready(std::uint64_t step) {
  std::uint64_t& held = known_[known_.self].here.ready;
  if (agreeing() || expelled_ || step <= held) {
    return;
  }
  held = step;
  MembershipMessage said = message(MembershipMessage::Kind::ready);
  said.step = step;
  send_all(said);
  deliver();
}

void Membership::deliver() {
  if (agreeing() || expelled_) {
    return;
  }
  std::uint64_t all = known_.of(known_.self).here.ready;
  for (const Id who : known_.world.members) {
    all = std::min(all, known_.of(who).here.ready);
  }
  all = std::max(all, told_);
  if (delivered_ < all) {
    delivered_ = all;
    for (auto& [who, process] : known_.all()) {
      process.forget_missed_steps();
    }
  }
}

// A process that delivered a step knows something that the others may need in order to deliver it, too.
void Membership::leave() {
  if (!expelled_) {
    send_all(message(MembershipMessage::Kind::beat));
  }
}

void Membership::confirm(std::uint64_t step) {
  if (expelled_ || !known_.member(known_.self) || step > delivered_ || step <= confirmed_) {
    return;
  }
  asked_ = step;
  confirm_if_answered();
  ask_to_confirm();
}

void Membership::ask_to_confirm() {
  asked_at_ = lived_;
  MembershipMessage said = message(MembershipMessage::Kind::confirm);
  said.step = asked_;
  for (const Id who : unconfirmed()) {
    send(who, said);
  }
}

// Every decision by a quorum of this epoch includes what one of these members has delivered. Or all of them have ended,
// and the end of the process that asked reports the step.
void Membership::confirm_if_answered() {
  if (asked_ == 0) {
    return;
  }
  const Ids answered = known_.which(
      [&](Id who, const ProcessRecord& process) { return who == known_.self || process.here.delivered >= asked_; });
  if (known_.quorum(answered, known_.dead_members())) {
    confirmed_ = std::exchange(asked_, 0);
  }
}

std::vector<Id> Membership::unconfirmed() const {
  return to_list(known_.which([&](Id who, const ProcessRecord& process) {
    return process.is_member() && who != known_.self && !process.has_ended() && process.here.delivered < asked_;
  }));
}

void Membership::hear_of_delivery(const MembershipMessage& message) {
  std::uint64_t& last = known_[message.from].here.delivered;
  last = std::max(last, message.step);
  told_ = std::max(told_, message.step);
  deliver();
  confirm_if_answered();
}

void Membership::receive(const MembershipMessage& message, Time clock) {
  const Time now = time_lived(clock);
  if (const ProcessRecord& from = known_.of(message.from);
      from.has_ended() && (from.end.epoch <= known_.world.epoch || message.kind != MembershipMessage::Kind::decided)) {
    return;  // what the others agreed on does not include what ended processes say
  }
  if (const std::string wrong = find_fault(message); !wrong.empty()) {
    return distrust(message.from, wrong, clock);
  }
  ProcessRecord& from = known_[message.from];
  from.cut.reset();
  from.rumoured = now;
  if (known_.world.members.empty()) {
    from.spoke = now;
  }
  if (message.kind == MembershipMessage::Kind::waits) {
    receive_wait(message, now);
  } else if (expelled_ && message.epoch >= known_.world.epoch) {
    return;  // a process that was left out tells others what it knows, and hears nothing
  } else if (message.kind == MembershipMessage::Kind::knows) {
    beaten_ = std::exchange(from.knows_of_wait, true) ? beaten_ : Time::min();  // all are to hear of it soon
    record_left_out(message);
    meet(message.from, now);
  } else if (message.kind == MembershipMessage::Kind::decided) {
    receive_decided(message, now);
  } else if (message.epoch < known_.world.epoch) {
    if (latest_ &&
        from.place != Place::joining) {  // a member of this world is at most one epoch behind; other processes are out
      MembershipMessage told = this->message(MembershipMessage::Kind::decided);
      told.decision = latest_;
      send(message.from, std::move(told));
    }
  } else if (message.epoch > known_.world.epoch) {
    send(message.from, this->message(MembershipMessage::Kind::beat));  // the answer is what this process missed
  } else if (known_.member(message.from) && known_.member(known_.self)) {
    receive_in_epoch(message, now);
  }
}

// A waiting process is in no world, and is not left out of one that it is not in.
void Membership::receive_decided(const MembershipMessage& message, Time now) {
  const World& next = message.decision->world;
  const bool mine = std::ranges::find(next.members, known_.self) != next.members.end();
  if (next.epoch > known_.world.epoch && (!known_.world.members.empty() || mine)) {
    decide(*message.decision, now);
    record_left_out(message);
  }
}

void Membership::receive_in_epoch(const MembershipMessage& message, Time now) {
  ProcessRecord& from = known_[message.from];
  from.here.heard = now;
  from.here.present = true;
  from.was_unheard = false;
  tell_joiners();
  switch (message.kind) {
    case MembershipMessage::Kind::beat:
      record_left_out(message);
      hear_of_delivery(message);
      break;
    case MembershipMessage::Kind::confirm:
      hear_of_delivery(message);
      if (delivered_ >= message.step) {  // otherwise it has promised not to deliver, and the decision tells
        MembershipMessage said = this->message(MembershipMessage::Kind::confirmed);
        said.step = message.step;
        send(message.from, std::move(said));
      }
      break;
    case MembershipMessage::Kind::confirmed: hear_of_delivery(message); break;
    case MembershipMessage::Kind::decided:
    case MembershipMessage::Kind::waits:
    case MembershipMessage::Kind::knows: break;
    case MembershipMessage::Kind::ready:
      from.here.ready = std::max(from.here.ready, message.step);
      deliver();
      break;
    case MembershipMessage::Kind::suspect:
      hear_rumours(message, now);
      from.here.doubts = {message.silent.begin(), message.silent.end()};
      from.here.misses_self = from.here.misses_self || from.here.doubts.contains(known_.self);
      begin(now);
      advance(now);
      break;
    case MembershipMessage::Kind::prepare: answer_prepare(message, now); break;
    case MembershipMessage::Kind::promise:
      if (phase_ == Phase::preparing && message.ballot == promised_) {
        hear_rumours(message, now);
        from.give_promise(message);
        advance(now);
      }
      break;
    case MembershipMessage::Kind::refuse:
      if (leads() && message.ballot > promised_) {
        promised_.round = message.ballot.round;  // the next ballot is above it
        phase_ = Phase::following;
        waits_until_ = now + 2 * known_.settings.beat;
      }
      break;
    case MembershipMessage::Kind::accept: answer_accept(message, now); break;
    case MembershipMessage::Kind::accepted:
      if (phase_ == Phase::proposing && message.ballot == promised_) {
        from.accept();
        advance(now);
      }
      break;
  }
}

void Membership::tick(Time clock) {
  const Time now = time_lived(clock);
  if (expelled_ || !known_.member(known_.self)) {
    announce_wait(now);
    return;
  }
  if (beaten_ == Time::min() || now - beaten_ >= known_.settings.beat) {
    beaten_ = now;
    if (agreeing()) {
      send_all(suspicion(now));
    } else if (known_.has_to_tell_joiners() || !known_.all_have_spoken()) {
      send_all(message(MembershipMessage::Kind::beat));  // until all are known to be here
    } else {
      for (const Id who : known_.neighbours(true)) {
        send(who, message(MembershipMessage::Kind::beat));
      }
    }
  }
  tell_joiners();  // the process that had to be heard before may have ended
  if (asked_ > 0 && now - asked_at_ >= kBeatsOfBallot * known_.settings.beat) {
    ask_to_confirm();
  }
  believe_rumours(now);
  grow(now);
  if (!agreeing()) {
    if (!known_.misses_a_member(now)) {
      return;
    }
    begin(now);
    send_all(suspicion(now));
  }
  advance(now);
  if (leads() && now - sent_ >= kBeatsOfBallot * known_.settings.beat) {
    send_ballot(now);  // members that entered the epoch meanwhile have not got it
    for (const Id who :
         known_.possibly_taken_in(ballot_dead_)) {  // if the others went on with such a process, it says so
      send(who, message(MembershipMessage::Kind::beat));
    }
  }
}

std::vector<Id> Membership::unready() const {
  return to_list(known_.which([&](Id who, const ProcessRecord& process) {
    return process.is_member() && who != known_.self && process.here.ready <= delivered_;
  }));
}

std::vector<Id> Membership::awaited_members() const {
  return to_list(known_.which([&](Id who, const ProcessRecord& process) {
    const bool is_silent = leads() ? process.here.answer == Answer::none : who == promised_.by;
    const bool missing = agreeing() ? is_silent : process.here.ready <= delivered_;
    return process.is_member() && missing && who != known_.self && !process.has_ended();
  }));
}

}  // namespace gradwire::membership
