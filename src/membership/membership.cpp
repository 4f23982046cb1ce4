#include "membership/membership.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gradwire::membership {
namespace {

constexpr std::size_t kWatched = 2;  // members that each one listens to, where nobody is missed
constexpr int kBeatsOfDoubt = 4;     // without a sign, of one that others call silent
constexpr int kBeatsOfBallot = 3;    // before those that have not answered it get it again
constexpr int kBeatsOfWaiting = 10;  // without a word, until one that waited may be gone
constexpr int kBeatsOfSleep = 5;     // between two calls; after more this process was stopped, or its clock jumped

Settings with_start(Settings settings, const World& world) {
  if (settings.start.empty()) {
    settings.start = world.members;
  }
  return settings;
}

}  // namespace

Membership::Membership(Id self, World world, std::uint64_t delivered, Settings settings, Time now)
    : self_(self),
      settings_(with_start(std::move(settings), world)),
      world_(std::move(world)),
      delivered_(delivered),
      called_(now),
      lived_(now),
      entered_(delivered) {
  for (const Id who : world_.members) {
    heard_[who] = now;
  }
  beaten_ = now;
}

// What all times are measured by. While this process was stopped the others may have been stopped, too, or have spoken
// without being heard yet; so that time says nothing of them, and what they were silent for before is forgotten with
// it.
Time Membership::time_lived(Time now) {
  const Time passed = now - std::exchange(called_, now);
  if (passed >= Time(0) && passed <= kBeatsOfSleep * settings_.beat) {
    return lived_ += passed;
  }
  for (auto& [who, heard] : heard_) {
    heard = lived_;
  }
  for (auto& [who, waiting] : waiting_) {
    waiting.said = lived_;
  }
  began_ = lived_;
  return lived_;
}

bool Membership::member(Id who) const { return std::binary_search(world_.members.begin(), world_.members.end(), who); }

Message Membership::message(Message::Kind kind) const {
  Message message;
  message.kind = kind;
  message.from = self_;
  message.epoch = world_.epoch;
  message.step = kind == Message::Kind::beat ? delivered_ : 0;
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
  all = std::max(all, told_);
  while (delivered_ < all) {
    news_.emplace_back(Delivered{++delivered_});
    fresh_.clear();
    missed_.clear();  // all links work
    missed_before_.clear();
  }
}

// Who delivered a step knows something that the others may need, to deliver it too.
void Membership::leave() {
  if (!expelled_) {
    send_all(message(Message::Kind::beat));
  }
}

void Membership::dead(Id who, Time now) { hear_of_end(who, time_lived(now)); }

void Membership::hear_of_end(Id who, Time now) {
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

void Membership::missed(Id who, Time clock) {
  const Time now = time_lived(clock);
  if (expelled_ || who == self_ || !member(who) || dead_.contains(who)) {
    return;
  }
  missed_.insert(who);
  begin(now);
  send_all(suspicion(now));
  advance(now);
}

bool Membership::is_waiting(Id who, Time now) const {
  const auto found = waiting_.find(who);
  return found != waiting_.end() && now - found->second.said <= kBeatsOfWaiting * settings_.beat;
}

// Of these none has taken it in, then.
bool Membership::waits_knowing(Id who, const Ids& ended) const {
  const auto found = waiting_.find(who);
  return found != waiting_.end() &&
         std::includes(found->second.ended.begin(), found->second.ended.end(), ended.begin(), ended.end());
}

bool Membership::at_start(Id who) const { return std::ranges::find(settings_.start, who) != settings_.start.end(); }

// Of those that may still wake up and find all others ended, each would ask it.
bool Membership::is_known_to_all(Id who) const {
  const Ids& known = waiting_.at(who).known;
  const auto knows = [&](Id other) { return other == who || ended_.contains(other) || known.contains(other); };
  return std::ranges::all_of(settings_.start, knows) && std::ranges::all_of(newcomers_, knows);
}

// `size`: members so far.
bool Membership::may_come(Id who, std::size_t size, Time now) const {
  return is_waiting(who, now) && (at_start(who) ? size < settings_.full : is_known_to_all(who));
}

void Membership::hear_that_it_waits(const Message& message, Time now) {
  const Id who = message.from;
  if (!at_start(who) && std::ranges::find(message.known, self_) == message.known.end()) {
    newcomers_.insert(who);
    send(who, this->message(Message::Kind::knows));
  }
  if (!expelled_ && !member(who)) {
    waiting_[who] = {now, {message.dead.begin(), message.dead.end()}, {message.known.begin(), message.known.end()}};
    advance(now);
  }
}

std::vector<Id> Membership::unaware() const {
  std::vector<Id> ids;
  std::ranges::copy_if(told_of_wait_, std::back_inserter(ids), [&](Id who) {
    return who != self_ && !ended_.contains(who) && !known_to_.contains(who) && !waiting_.contains(who);
  });
  return ids;
}

bool Membership::alone() const {
  return world_.members.empty() && std::all_of(told_of_wait_.begin(), told_of_wait_.end(), [&](Id who) {
           return who == self_ || ended_.contains(who) || waits_knowing(who, ended_);
         });
}

// The lowest member begins it. A step was delivered before, so that each change is worth one, and all hold the same.
void Membership::grow(Time now) {
  const std::size_t size = world_.members.size();
  if (agreeing_ || world_.members.front() != self_ || delivered_ == entered_ || !fresh_.empty() || !untold_.empty() ||
      in_epoch_.size() + 1 < size) {
    return;
  }
  if (std::ranges::any_of(let_in_, [&](Id who) { return may_come(who, size, now); })) {
    begin(now);
    send_all(suspicion(now));
  }
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
  return said;
}

void Membership::receive(const Message& message, Time clock) {
  const Time now = time_lived(clock);
  if (ended_.contains(message.from)) {
    return;  // what the others agreed on does not hold what those say who have ended
  }
  if (message.kind == Message::Kind::waits) {
    hear_that_it_waits(message, now);
  } else if (expelled_ && message.epoch >= world_.epoch) {
    return;  // it says to others what it knows, and hears nothing
  } else if (message.kind == Message::Kind::knows) {
    beaten_ = known_to_.insert(message.from).second ? Time::min() : beaten_;  // all are to hear of it soon
    if (!at_start(message.from)) {
      newcomers_.insert(message.from);
    }
  } else if (message.kind == Message::Kind::decided) {
    // A process that waits is in no world, and not left out of one that it is not in.
    const auto mine = [&](const World& next) { return std::ranges::find(next.members, self_) != next.members.end(); };
    if (message.decision && message.decision->world.epoch > world_.epoch &&
        (!world_.members.empty() || mine(message.decision->world))) {
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
      told_ = std::max(told_, message.step);
      deliver();
      break;
    case Message::Kind::decided:
    case Message::Kind::waits:
    case Message::Kind::knows: break;
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
      begin(now);
      advance(now);
      break;
    case Message::Kind::prepare: answer_prepare(message, now); break;
    case Message::Kind::promise:
      if (phase_ == Phase::preparing && message.ballot == promised_) {
        note_dead(message.dead);
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

void Membership::say_that_it_waits(Time now) {
  if (expelled_ || (beaten_ != Time::min() && now - beaten_ < settings_.beat)) {
    return;
  }
  beaten_ = now;
  Message said = message(Message::Kind::waits);
  said.dead = to_list(ended_);
  said.known = to_list(known_to_);
  for (const Id who : told_of_wait_) {
    if (who != self_ && !ended_.contains(who)) {
      send(who, said);
    }
  }
}

void Membership::tick(Time clock) {
  const Time now = time_lived(clock);
  if (expelled_ || !member(self_)) {
    say_that_it_waits(now);
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
  tell_joiners();  // who was to be heard before may have ended
  grow(now);
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
    send_ballot(now);                // who entered the epoch meanwhile has not got it
    for (const Id who : unsure()) {  // if the others went on with it, it says so
      send(who, message(Message::Kind::beat));
    }
  }
}

std::vector<Id> Membership::unready() const {
  std::vector<Id> ids;
  for (const Id who : world_.members) {
    const auto found = ready_.find(who);
    if (who != self_ && (found == ready_.end() || found->second <= delivered_)) {
      ids.push_back(who);
    }
  }
  return ids;
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
  for (const Id who : phase_ == Phase::following ? std::vector<Id>() : unsure()) {
    text += (text.empty() ? "" : ", ") + std::to_string(who) + " (which waits to be a member)";
  }
  return text;
}

}  // namespace gradwire::membership
