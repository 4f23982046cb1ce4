#include "membership/membership.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gradwire::membership {
namespace {

constexpr std::size_t kWatched = 2;  // members that each one listens to, where nobody is missed
constexpr int kComplaints = 1;       // agreements after which two that cannot hear each other are parted
constexpr int kBeatsOfDoubt = 4;     // without a sign, of one that others call silent
constexpr int kBeatsOfLeader = 10;   // that another one gets before this process leads

std::vector<Id> to_list(const std::set<Id>& ids) { return {ids.begin(), ids.end()}; }

}  // namespace

Membership::Membership(Id self, World world, std::uint64_t delivered, Settings settings, Time now)
    : self_(self), settings_(settings), world_(std::move(world)), delivered_(delivered) {
  for (const Id who : world_.members) {
    heard_[who] = now;
  }
  beaten_ = now;
}

bool Membership::member(Id who) const { return std::binary_search(world_.members.begin(), world_.members.end(), who); }

Message Membership::message(Message::Kind kind) const {
  Message message;
  message.kind = kind;
  message.from = self_;
  message.epoch = world_.epoch;
  return message;
}

void Membership::send(Id to, Message message) { messages_.push_back({to, std::move(message)}); }

void Membership::send_all(const Message& message) {
  for (const Id who : world_.members) {
    if (who != self_ && !dead_.contains(who)) {
      send(who, message);
    }
  }
}

std::vector<Membership::Outgoing> Membership::take_messages() { return std::exchange(messages_, {}); }
std::vector<News> Membership::take_news() { return std::exchange(news_, {}); }

// In a ring, so that each is listened to by two others, whoever is missed.
Membership::Ids Membership::neighbours(bool before) const {
  Ids found;
  const std::size_t size = world_.members.size();
  const auto at = static_cast<std::size_t>(std::lower_bound(world_.members.begin(), world_.members.end(), self_) -
                                           world_.members.begin());
  for (std::size_t i = 1; i <= kWatched && i < size; ++i) {
    found.insert(world_.members[(at + (before ? size - i : i)) % size]);
  }
  return found;
}
Membership::Ids Membership::watched() const { return neighbours(false); }
Membership::Ids Membership::watchers() const { return neighbours(true); }

bool Membership::silent(Id who, Time now) const {
  if (who == self_ || dead_.contains(who)) {
    return false;
  }
  const Time quiet = now - heard_.at(who);
  return quiet >= settings_.silent_after || (doubted_.contains(who) && quiet >= kBeatsOfDoubt * settings_.beat);
}

std::vector<Id> Membership::silent_ids(Time now) const {
  std::vector<Id> ids;
  std::copy_if(world_.members.begin(), world_.members.end(), std::back_inserter(ids),
               [&](Id who) { return silent(who, now); });
  return ids;
}

Id Membership::leader(Time now) const {
  const auto found = std::find_if(world_.members.begin(), world_.members.end(),
                                  [&](Id who) { return !dead_.contains(who) && !silent(who, now); });
  return found == world_.members.end() ? self_ : *found;
}

// All that have not ended; or more than half of the members, or half with the lowest, the ended ones counted as
// members. Then no two of these sets are without a process in common that lives. (Counting out the ended ones from the
// half would be wrong: 3 of 5 may have left out two, of them two may end, and the two left out would be a majority of
// three.)
bool Membership::quorum(const Ids& answered) const {
  std::size_t with = 0;
  bool all = true;
  for (const Id who : world_.members) {
    with += answered.contains(who) ? 1 : 0;
    all = all && (answered.contains(who) || dead_.contains(who));
  }
  const std::size_t size = world_.members.size();
  return all || 2 * with > size || (2 * with == size && answered.contains(world_.members.front()));
}

void Membership::ready(std::uint64_t step) {
  if (agreeing_ || expelled_ || step <= ready_[self_]) {
    return;
  }
  ready_[self_] = step;
  Message said = message(Message::Kind::ready);
  said.step = step;
  send_all(said);
  deliver();
}

void Membership::deliver() {
  if (agreeing_ || expelled_) {
    return;
  }
  std::uint64_t all = ready_[self_];
  for (const Id who : world_.members) {
    all = std::min(all, ready_[who]);
  }
  while (delivered_ < all) {
    news_.emplace_back(Delivered{++delivered_});
  }
}

void Membership::dead(Id who, Time now) {
  joining_.erase(who);
  ended_.insert(who);
  if (expelled_ || who == self_ || !member(who) || !dead_.insert(who).second) {
    return;
  }
  begin(now);
  Message said = message(Message::Kind::suspect);
  said.dead = to_list(dead_);
  send_all(said);
  advance(now);
}

void Membership::missed(Id who, Time now) {
  if (expelled_ || who == self_ || !member(who) || dead_.contains(who)) {
    return;
  }
  begin(now);
  heard_[who] = std::min(heard_[who], now - settings_.silent_after);
  Message said = message(Message::Kind::suspect);
  said.silent = {who};
  send_all(said);
  advance(now);
}

void Membership::admit(Id who, Time now) {
  if (expelled_ || member(who) || ended_.contains(who)) {
    return;
  }
  joining_.insert(who);
  begin(now);
  Message said = message(Message::Kind::suspect);
  said.joining = to_list(joining_);
  send_all(said);
  advance(now);
}

void Membership::receive(const Message& message, Time now) {
  if (expelled_) {
    return;
  }
  if (message.kind == Message::Kind::decided) {
    if (message.decision && message.decision->world.epoch > world_.epoch) {
      decide(*message.decision, now);
    }
  } else if (message.epoch < world_.epoch) {
    if (latest_) {  // a member of this world is one epoch behind at most, others are out
      Message told = this->message(Message::Kind::decided);
      told.decision = latest_;
      send(message.from, std::move(told));
    }
  } else if (message.epoch > world_.epoch) {
    send(message.from, this->message(Message::Kind::beat));  // is answered by what was missed
  } else if (member(message.from) && member(self_)) {
    receive_in_epoch(message, now);
  }
}

void Membership::receive_in_epoch(const Message& message, Time now) {
  heard_[message.from] = now;
  doubted_.erase(message.from);
  switch (message.kind) {
    case Message::Kind::beat:
    case Message::Kind::decided: break;
    case Message::Kind::ready:
      ready_[message.from] = std::max(ready_[message.from], message.step);
      deliver();
      break;
    case Message::Kind::suspect:
      note_dead(message.dead);
      for (const Id who : message.silent) {
        if (member(who) && who != self_) {
          doubted_.insert(who);
        }
      }
      for (const Id who : message.joining) {
        if (!member(who) && !ended_.contains(who)) {
          joining_.insert(who);
        }
      }
      begin(now);
      advance(now);
      break;
    case Message::Kind::prepare: answer_prepare(message, now); break;
    case Message::Kind::promise:
      if (phase_ == Phase::preparing && message.ballot == promised_) {
        note_dead(message.dead);
        joining_.insert(message.joining.begin(), message.joining.end());
        promises_[message.from] = message;
        advance(now);
      }
      break;
    case Message::Kind::refuse:
      if (phase_ != Phase::following && message.ballot > promised_) {
        promised_.round = message.ballot.round;  // the next ballot is above it
        phase_ = Phase::following;
        waits_until_ = now + 2 * settings_.beat;
      }
      break;
    case Message::Kind::accept: answer_accept(message, now); break;
    case Message::Kind::accepted:
      if (phase_ == Phase::proposing && message.ballot == promised_) {
        acceptances_.insert(message.from);
        advance(now);
      }
      break;
  }
}

// From here on nothing of this epoch is delivered but what is decided.
void Membership::begin(Time now) {
  if (agreeing_) {
    return;
  }
  agreeing_ = true;
  phase_ = Phase::following;
  const Ids watching = watched();
  for (auto& [who, heard] : heard_) {
    if (!watching.contains(who)) {
      heard = now;  // it owed no sign of life until now
    }
  }
  beaten_ = Time::min();
}

void Membership::note_dead(const std::vector<Id>& who) {
  for (const Id id : who) {
    if (id != self_) {
      ended_.insert(id);
      if (member(id)) {
        dead_.insert(id);
      }
    }
  }
}

// What can be done now, by what is known now.
void Membership::advance(Time now) {
  if (agreeing_ && phase_ == Phase::following && now >= waits_until_ && leader(now) == self_) {
    begin_ballot(now);
  } else if (phase_ == Phase::preparing) {
    propose_if_answered(now);
  } else if (phase_ == Phase::proposing) {
    decide_if_accepted(now);
  }
}

Message Membership::promise() const {
  Message said = message(Message::Kind::promise);
  said.ballot = promised_;
  said.step = delivered_;
  said.dead = to_list(dead_);
  said.joining = to_list(joining_);
  for (const auto& [who, times] : complaints_) {
    if (times >= kComplaints && member(who)) {
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
  promises_[self_] = promise();
  Message said = message(Message::Kind::prepare);
  said.ballot = promised_;
  send_all(said);
  propose_if_answered(now);
}

void Membership::follow(const Ballot& ballot, Time now) {
  phase_ = Phase::following;
  promised_ = ballot;
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
  follow(message.ballot, now);
  send(message.from, promise());
}

void Membership::answer_accept(const Message& message, Time now) {
  begin(now);
  if (!message.decision || message.ballot < promised_) {
    Message said = this->message(Message::Kind::refuse);
    said.ballot = promised_;
    send(message.from, std::move(said));
    return;
  }
  follow(message.ballot, now);
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
    } else if (!dead_.contains(who) && !silent(who, now)) {
      return;
    }
  }
  if (!quorum(answered)) {
    return;
  }
  phase_ = Phase::proposing;
  value_ = choose();
  accepted_ = promised_;
  acceptances_ = {self_};
  Message said = message(Message::Kind::accept);
  said.ballot = promised_;
  said.decision = value_;
  send_all(said);
  decide_if_accepted(now);
}

Decision Membership::choose() const {
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
  std::uint64_t delivered = 0;
  for (const auto& [who, said] : promises_) {
    if (!dead_.contains(who)) {
      next.insert(who);
    }
    delivered = std::max(delivered, said.step);
  }
  for (const auto& [who, said] : promises_) {  // two that cannot hear each other: one must go
    for (const Id other : said.silent) {
      if (next.contains(who) && next.contains(other)) {
        next.erase(std::max(who, other));
      }
    }
  }
  next.insert(joining_.begin(), joining_.end());
  return {{world_.epoch + 1, to_list(next)}, delivered};
}

void Membership::decide_if_accepted(Time now) {
  if (phase_ == Phase::proposing && quorum(acceptances_)) {
    const Decision decision = *value_;
    Message said = message(Message::Kind::decided);
    said.decision = decision;
    send_all(said);
    for (const Id who : decision.world.members) {
      if (!member(who)) {
        send(who, said);
      }
    }
    decide(decision, now);
  }
}

void Membership::decide(const Decision& decision, Time now) {
  const std::vector<Id> unheard = silent_ids(now);
  std::map<Id, int> complaints;
  for (const Id who : unheard) {
    complaints[who] = complaints_[who] + 1;
  }
  complaints_ = std::move(complaints);
  latest_ = decision;
  world_ = decision.world;
  agreeing_ = false;
  phase_ = Phase::following;
  promised_ = {};
  accepted_ = {};
  value_.reset();
  promises_.clear();
  acceptances_.clear();
  waits_until_ = {};
  dead_.clear();
  doubted_.clear();
  joining_.clear();
  ready_.clear();
  heard_.clear();
  for (const Id who : world_.members) {
    heard_[who] = now;
  }
  beaten_ = now;
  if (!member(self_)) {
    expelled_ = true;
    news_.emplace_back(Expelled{world_.epoch});
    return;
  }
  delivered_ = std::max(delivered_, decision.delivered);
  news_.emplace_back(Changed{decision});
  for (const Id who : Ids(ended_)) {  // who ended after the world was chosen
    dead(who, now);
  }
}

void Membership::tick(Time now) {
  if (expelled_ || !member(self_)) {
    return;
  }
  if (beaten_ == Time::min() || now - beaten_ >= settings_.beat) {
    beaten_ = now;
    if (agreeing_) {
      send_all(message(Message::Kind::beat));
    } else {
      for (const Id who : watchers()) {
        send(who, message(Message::Kind::beat));
      }
    }
  }
  if (!agreeing_) {
    const Ids watching = watched();
    Message said = message(Message::Kind::suspect);
    std::copy_if(watching.begin(), watching.end(), std::back_inserter(said.silent),
                 [&](Id who) { return silent(who, now); });
    if (said.silent.empty()) {
      return;
    }
    begin(now);
    send_all(said);
  }
  advance(now);
}

std::string Membership::waits_for() const {
  std::string text;
  for (const Id who : world_.members) {
    const auto found = ready_.find(who);
    const bool missing = agreeing_ ? !promises_.contains(who) : found == ready_.end() || found->second <= delivered_;
    if (missing && who != self_ && !dead_.contains(who)) {
      text += (text.empty() ? "" : ", ") + std::to_string(who);
    }
  }
  return text;
}

}  // namespace gradwire::membership
