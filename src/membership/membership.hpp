// One process's part in agreeing on who takes part, and on which steps count: a state machine without clock, lock or
// transport. What was seen and what came goes in, messages and news come out.
//
// A step is delivered once every member has said that it holds all it needs (two-phase commit), so a member that
// delivers knows that all others can. When a member is missed, the others stop delivering and agree on the next world
// and on the last step delivered, by Paxos (Lamport, "Paxos made simple", 2001) among the members. Two ways to be
// missed: a process that has ended is known to have ended; one that is silent may wake up, so it is left out only by
// more than half of the members, or by half with the lowest. A process that was left out learns so from the first
// member that it talks to, and its messages carry an epoch that is over. Messages of one process to another come in the
// order in which they were sent, or from some point on not at all.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "membership/message.hpp"

namespace gradwire::membership {

// Since any moment. It may jump: only what passes between two calls that are at most a few beats apart counts.
using Time = std::chrono::milliseconds;

struct Settings {
  Time beat{100};               // between two signs of life
  Time silent_after{5000};      // without any
  std::size_t full = 0;         // members of a whole world: while there are fewer, spares are taken in
  std::vector<Id> start = {};   // all processes that there were at the beginning; empty: the members of the world
  std::vector<Id> spares = {};  // of them, those that wait for a place
};

/// All members hold what they need of this step: deliver it.
struct Delivered {
  std::uint64_t step;
};
/// The next world. What was under way beyond `decision.delivered` is to be undone, what is up to it delivered.
struct Changed {
  Decision decision;
};
/// The others went on without this process; it must not send to them any more.
struct Expelled {
  std::uint32_t epoch;  // of the world that it is not in
};
using News = std::variant<Delivered, Changed, Expelled>;

class Membership {
 public:
  struct Outgoing {
    Id to;
    Message message;
  };

  /// Of a process that waits, `world` has no members.
  Membership(Id self, World world, std::uint64_t delivered, Settings settings, Time now);

  /// This process holds all it needs of `step`.
  void ready(std::uint64_t step);
  /// `who` has ended, for certain: its connection broke, or the engine says so.
  void dead(Id who, Time now);
  /// A step waits for `who` for too long, though it may give signs of life to others.
  void missed(Id who, Time clock);
  /// Of a process that is in no world: from here on it says so every beat to `others`, until it is in one. Again where
  /// there are more of them.
  void wait_among(std::vector<Id> others) { told_of_wait_ = std::move(others); }
  /// `who` may be a member: a spare while some are missing, one that has joined always. If it waits, it is in the next
  /// world. Where nothing else makes one, this does once a step is delivered.
  void let_in(Id who) { let_in_.insert(who); }
  /// Of a process that waits: those that have not said that they know of it.
  [[nodiscard]] std::vector<Id> unaware() const;
  /// Of a process that waits: all others have ended, or wait and know that.
  [[nodiscard]] bool alone() const;
  /// This process ends, in good order: last words.
  void leave();
  void receive(const Message& message, Time clock);
  /// To be called at least every `beat`. A process that was not, as one that was stopped together with the others,
  /// knows nothing of their silence: it begins to count anew.
  void tick(Time clock);

  /// What to send, and what has happened, since the last call.
  [[nodiscard]] std::vector<Outgoing> take_messages();
  [[nodiscard]] std::vector<News> take_news();

  [[nodiscard]] Id self() const noexcept { return self_; }
  [[nodiscard]] const World& world() const noexcept { return world_; }
  [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }
  [[nodiscard]] bool agreeing() const noexcept { return agreeing_; }
  [[nodiscard]] bool expelled() const noexcept { return expelled_; }
  /// Members that have not said that they hold what they need of the next step.
  [[nodiscard]] std::vector<Id> unready() const;
  /// Members that this process waits for, in words: for errors.
  [[nodiscard]] std::string waits_for() const;

 private:
  using Ids = std::set<Id>;
  [[nodiscard]] static std::vector<Id> to_list(const Ids& ids) { return {ids.begin(), ids.end()}; }
  enum class Phase : std::uint8_t { following, preparing, proposing };

  [[nodiscard]] Time time_lived(Time now);
  void hear_of_end(Id who, Time now);
  void receive_in_epoch(const Message& message, Time now);
  void deliver();
  void begin(Time now);
  void advance(Time now);
  void begin_ballot(Time now);
  void send_ballot(Time now);
  void follow(const Message& ballot, Time now);
  void tell_joiners();
  void part(Ids& next) const;
  void note_dead(const std::vector<Id>& who);
  void propose_if_answered(Time now);
  void decide_if_accepted(Time now);
  void answer_prepare(const Message& message, Time now);
  void answer_accept(const Message& message, Time now);
  void decide(const Decision& decision, Time now);
  [[nodiscard]] Decision choose(Time now) const;
  void take_in(Ids& next, Time now) const;
  void grow(Time now);
  void say_that_it_waits(Time now);
  [[nodiscard]] Message promise(Time now) const;
  [[nodiscard]] Message suspicion(Time now) const;
  [[nodiscard]] bool quorum(const Ids& answered) const;
  [[nodiscard]] bool is_waiting(Id who, Time now) const;
  [[nodiscard]] bool waits_knowing(Id who, const Ids& ended) const;
  [[nodiscard]] bool at_start(Id who) const;
  [[nodiscard]] bool is_known_to_all(Id who) const;
  [[nodiscard]] bool may_come(Id who, std::size_t size, Time now) const;
  void hear_that_it_waits(const Message& message, Time now);
  [[nodiscard]] std::vector<Id> unsure() const;
  [[nodiscard]] bool silent(Id who, Time now) const;
  [[nodiscard]] Id leader(Time now) const;
  [[nodiscard]] bool member(Id who) const;
  [[nodiscard]] Ids watched() const;
  [[nodiscard]] Ids watchers() const;
  [[nodiscard]] Ids neighbours(bool before) const;
  [[nodiscard]] std::vector<Id> silent_ids(Time now) const;
  [[nodiscard]] Message message(Message::Kind kind) const;
  void send(Id to, Message message);
  void send_all(const Message& message);

  const Id self_;
  const Settings settings_;
  World world_;
  std::uint64_t delivered_;
  bool agreeing_ = false;
  bool expelled_ = false;
  Time called_{};                   // when this process last ran, by its clock
  Time lived_{};                    // how long it has run, all other times are counted in this
  std::optional<Decision> latest_;  // what made this epoch, for who missed it
  Ids ended_;                       // all that are known to have ended, whatever the epoch
  Ids gone_;                        // knew that they were members, and are none: they never will be again
  struct Waiting {
    Time said{};  // the last time
    Ids ended;    // that it had heard of then
    Ids known;    // to whom, had it heard
  };
  std::map<Id, Waiting> waiting_;
  Ids newcomers_;  // not there at the beginning; they know this process, or it is told of them
  Ids known_to_;   // of a process that waits: who knows of it
  Ids let_in_;
  std::vector<Id> told_of_wait_;

  // Of this epoch.
  std::map<Id, std::uint64_t> ready_;
  std::uint64_t told_ = 0;  // the last step that a member said to have delivered
  std::map<Id, Time> heard_;
  Ids dead_;                   // of ended_ the members
  Ids doubted_;                // said by others to be silent
  Ids missed_;                 // by a step of this process
  Ids in_epoch_;               // have been heard in this epoch
  Ids untold_;                 // joined and do not know it yet
  Ids to_hear_;                // before they are told
  Ids fresh_;                  // joined, and no step was delivered since
  std::uint64_t entered_ = 0;  // delivered when this epoch began
  Time beaten_{};              // when the last signs of life were sent

  // Of the agreement under way.
  Phase phase_ = Phase::following;
  Ballot promised_;
  Ballot accepted_;
  std::optional<Decision> value_;  // accepted in ballot accepted_
  std::map<Id, Message> promises_;
  Ids acceptances_;
  Ids ballot_dead_;     // what who answers it knows to have ended
  Time began_{};        // this ballot
  Time sent_{};         // its latest message
  Time waits_until_{};  // before it leads: another does

  // Of the agreement before, until it shows that they can reach each other.
  Ids unheard_before_;  // did not give a sign of life
  Ids missed_before_;   // a step waited for them

  std::vector<Outgoing> messages_;
  std::vector<News> news_;
};

}  // namespace gradwire::membership
