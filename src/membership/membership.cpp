#include "membership/membership.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gradwire::membership {
namespace {

constexpr std::size_t kWatched = 2;  // members that each one listens to, where nobody is missed
constexpr int kBeatsOfDoubt = 4;     // without a sign, of one that others call silent
constexpr int kBeatsOfBallot = 3;    // before those that have not answered it get it again
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
    if (who != self_ && !dead_.contains(who) && !untold_.contains(who)) {
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

// More than half of the members, or half with the lowest, the ended ones counted as members; or all that have not
// ended. Two of the first kind share a process. One of the first kind of which a process lives shares it with one of
// the last kind; and what those say who have all ended is no longer heard by who answered (`ballot_dead_`). (Counting
// the ended ones out of the half would be wrong: 3 of 5 may have left out two, of them two may end, and the two left
// out would be a majority of three.)
bool Membership::quorum(const Ids& answered) const {
  std::size_t with = 0;
  bool all = true;
  for (const Id who : world_.members) {
    with += answered.contains(who) ? 1 : 0;
    all = all && (answered.contains(who) || ballot_dead_.contains(who));
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
    missed_.clear();  // all links work
    missed_before_.clear();
  }
}

void Membership::dead(Id who, Time now) {
  if (who == self_) {
    return;
  }
  note_dead({who});
  if (!expelled_ && dead_.contains(who)) {
    begin(now);
    send_all(suspicion(now));
    advance(now);
  }
}

void Membership::missed(Id who, Time now) {
  if (expelled_ || who == self_ || !member(who) || dead_.contains(who)) {
    return;
  }
  missed_.insert(who);
  begin(now);
  send_all(suspicion(now));
  advance(now);
}

void Membership::admit(Id who, Time now) {
  if (expelled_ || member(who) || ended_.contains(who)) {
    return;
  }
  joining_.insert(who);
  begin(now);
  send_all(suspicion(now));
  advance(now);
}

// Said again and again while they agree, as a sign of life: who enters the epoch late would not know.
Message Membership::suspicion(Time now) const {
  Message said = message(Message::Kind::suspect);
  said.dead = to_list(dead_);
  Ids silent = missed_;
  for (const Id who : silent_ids(now)) {
    silent.insert(who);
  }
  said.silent = to_list(silent);
  said.joining = to_list(joining_);
  return said;
}

void Membership::receive(const Message& message, Time now) {
  if (expelled_ || ended_.contains(message.from)) {
    return;  // what the others agreed on does not hold what those say who have ended
  }
  if (message.kind == Message::Kind::decided) {
    if (message.decision && message.decision->world.epoch > world_.epoch) {
      decide(*message.decision, now);
    }
  } else if (message.epoch < world_.epoch) {
    if (latest_ &&
        !untold_.contains(message.from)) {  // a member of this world is one epoch behind at most, others are out
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
  unheard_before_.erase(message.from);
  in_epoch_.insert(message.from);
  tell_joiners();
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
      joining_.erase(id);
      if (member(id)) {
        dead_.insert(id);
      }
    }
  }
}

// What can be done now, by what is known now.
void Membership::advance(Time now) {
  const bool may_lead = now >= waits_until_ || dead_.contains(promised_.by);
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
  said.step = delivered_;
  said.dead = to_list(dead_);
  said.joining = to_list(joining_);
  for (const Id who : world_.members) {  // again, and no step in between
    if ((missed_before_.contains(who) && missed_.contains(who)) ||
        (unheard_before_.contains(who) && silent(who, now))) {
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
  said.dead = to_list(ballot_dead_);
  if (phase_ == Phase::proposing) {
    said.decision = value_;
  }
  for (const Id who : world_.members) {
    const bool answered = phase_ == Phase::preparing ? promises_.contains(who) : acceptances_.contains(who);
    if (!answered && !dead_.contains(who)) {
      send(who, said);
    }
  }
}

void Membership::follow(const Message& ballot, Time now) {
  note_dead(ballot.dead);
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
  if (!message.decision || message.ballot < promised_) {
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
    } else if (!dead_.contains(who) && !silent(who, now) && now - began_ < settings_.silent_after) {
      return;  // who hears nothing, though it is heard, is waited for as long
    }
  }
  if (!quorum(answered)) {
    return;
  }
  phase_ = Phase::proposing;
  value_ = choose();
  accepted_ = promised_;
  acceptances_ = {self_};
  send_ballot(now);
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
  part(next);
  const std::size_t most = next.size();  // those that are in remain half of all, with the lowest
  std::size_t joined = 0;
  for (const Id who : joining_) {
    if (joined++ < most) {
      next.insert(who);
    }
  }
  return {{world_.epoch + 1, to_list(next)}, delivered};
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
  if (phase_ == Phase::proposing && quorum(acceptances_)) {
    const Decision decision = *value_;
    Message said = message(Message::Kind::decided);
    said.decision = decision;
    send_all(said);
    decide(decision, now);
  }
}

void Membership::decide(const Decision& decision, Time now) {
  const std::vector<Id> unheard = silent_ids(now);
  unheard_before_ = Ids(unheard.begin(), unheard.end());
  missed_before_ = std::exchange(missed_, {});
  // A process that joins is told once all that were in know of it: nobody asks it what was decided.
  untold_.clear();
  to_hear_.clear();
  for (const Id who : decision.world.members) {
    if (!member(who)) {
      untold_.insert(who);
    } else if (who != self_) {
      to_hear_.insert(who);
    }
  }
  latest_ = decision;
  world_ = decision.world;
  agreeing_ = false;
  phase_ = Phase::following;
  promised_ = {};
  accepted_ = {};
  value_.reset();
  promises_.clear();
  acceptances_.clear();
  ballot_dead_.clear();
  waits_until_ = {};
  dead_.clear();
  doubted_.clear();
  joining_.clear();
  ready_.clear();
  in_epoch_.clear();
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
  if (!untold_.empty() && !agreeing_) {
    send_all(message(Message::Kind::beat));
  }
  if (!untold_.empty() && !agreeing_) {
    send_all(message(Message::Kind::beat));  // so that all soon know of all
  }
  tell_joiners();
}

void Membership::tell_joiners() {
  if (untold_.empty() || expelled_ || !latest_) {
    return;
  }
  const bool all = std::all_of(to_hear_.begin(), to_hear_.end(),
                               [&](Id who) { return dead_.contains(who) || in_epoch_.contains(who); });
  if (all) {
    Message said = message(Message::Kind::decided);
    said.decision = latest_;
    for (const Id who : std::exchange(untold_, {})) {
      send(who, said);
    }
  }
}

void Membership::tick(Time now) {
  if (expelled_ || !member(self_)) {
    return;
  }
  if (beaten_ == Time::min() || now - beaten_ >= settings_.beat) {
    beaten_ = now;
    if (agreeing_) {
      send_all(suspicion(now));
    } else if (!untold_.empty() || in_epoch_.size() + 1 < world_.members.size()) {
      send_all(message(Message::Kind::beat));  // until all are known to be here
    } else {
      for (const Id who : watchers()) {
        send(who, message(Message::Kind::beat));
      }
    }
  }
  if (!agreeing_) {
    const Ids watching = watched();
    if (std::none_of(watching.begin(), watching.end(), [&](Id who) { return silent(who, now); })) {
      return;
    }
    begin(now);
    send_all(suspicion(now));
  }
  advance(now);
  if (phase_ != Phase::following && now - sent_ >= kBeatsOfBallot * settings_.beat) {
    send_ballot(now);  // who entered the epoch meanwhile has not got it
  }
}

std::string Membership::waits_for() const {
  std::string text;
  for (const Id who : world_.members) {
    const auto found = ready_.find(who);
    const bool behind = found == ready_.end() || found->second <= delivered_;
    const bool unanswered = phase_ == Phase::preparing ? !promises_.contains(who) : !acceptances_.contains(who);
    const bool missing = !agreeing_ ? behind : (phase_ == Phase::following ? who == promised_.by : unanswered);
    if (missing && who != self_ && !dead_.contains(who)) {
      text += (text.empty() ? "" : ", ") + std::to_string(who);
    }
  }
  return text;
}

}  // namespace gradwire::membership
