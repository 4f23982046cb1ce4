// One process's part in agreeing on who takes part, and on which steps count: a state machine without clock, lock or
// transport. What was seen and what came goes in, messages and news come out.
//
// A step is delivered once every member has said that it holds all it needs (two-phase commit), so a member that
// delivers knows that all others can. When a member is missed, the others stop delivering and agree on the next world
// and on the last step delivered, by Paxos (Lamport, "Paxos made simple", 2001) among the members. Two ways to be
// missed: a process that has ended, as it said itself or a witness did, is known to have ended; one that is silent or
// cannot be reached may come back, so it is left out only by more than half of the members, or by half with the lowest.
// A process that was left out learns so from the first member that it talks to, and its messages carry an epoch that is
// over. Messages of one process to another come in the order in which they were sent; some may be lost where cut() or
// distrust() tells of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "membership/known_processes.hpp"
#include "membership/membership_message.hpp"
#include "membership/process_record.hpp"

namespace gradwire::membership {

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
/// `who` has said what no process says that keeps to the rules.
struct Distrusted {
  Id who;
  std::string why;
};
using News = std::variant<Delivered, Changed, Expelled, Distrusted>;

class Membership {
 public:
  struct Outgoing {
    Id to;
    MembershipMessage message;
  };

  /// Of a process that waits, `world` has no members.
  Membership(Id self, World world, std::uint64_t delivered, MembershipSettings settings, Time now);

  /// This process holds all it needs of `step`.
  void ready(std::uint64_t step);
  /// It has ended, for certain: it said so, or a witness did. Where it had entered a later world than this process,
  /// others went on with it, so that it counts here as one that may still decide.
  void dead(const ProcessEnd& who, Time clock);
  /// Nothing reaches `who`, or comes from it, for now; messages may have been lost. It may live.
  void cut(Id who, Time clock);
  /// The way is there again.
  void back(Id who) { known_[who].cut.reset(); }
  /// A step waits for `who` for too long, though it may give signs of life to others.
  void missed(Id who, Time clock);
  /// A message of `who` was lost, though nothing is wrong with the way there.
  void damaged(Id who, Time clock);
  /// `who` has said what it cannot have said: one of the two goes.
  void distrust(Id who, const std::string& why, Time clock);

  /// Asks the members whether they have delivered `step`, as this one has, until a quorum says so: confirmed(). To be
  /// called once the end of this process would tell of that step (ProcessEnd::step).
  void confirm(std::uint64_t step);
  /// Up to here every step counts in all later worlds, whatever becomes of this process.
  [[nodiscard]] std::uint64_t confirmed() const noexcept { return confirmed_; }
  /// Members that have not answered confirm().
  [[nodiscard]] std::vector<Id> unconfirmed() const;

  /// Of a process that is in no world: from here on it says so every beat to `others`, until it is in one. Again where
  /// there are more of them.
  void wait_among(std::vector<Id> others);
  /// `who` may be a member: a spare while some are missing, one that has joined always. If it waits, it is in the next
  /// world. Where nothing else makes one, this does once a step is delivered.
  void let_in(Id who) { known_[who].let_in = true; }
  /// Of a process that waits: those that have not said that they know of it.
  [[nodiscard]] std::vector<Id> unaware() const;
  /// Of a process that waits: all others have ended, were left out or cannot be reached, or wait and know that.
  [[nodiscard]] bool alone() const;

  /// This process ends, in good order: last words.
  void leave();
  void receive(const MembershipMessage& message, Time clock);
  /// To be called at least every `beat`. A process that was not, as one that was stopped together with the others,
  /// knows nothing of their silence: it begins to count anew.
  void tick(Time clock);

  /// What to send, and what has happened, since the last call. Of a later epoch than the process has told its witness
  /// nothing may be sent.
  [[nodiscard]] std::vector<Outgoing> take_messages();
  [[nodiscard]] std::vector<News> take_news();

  [[nodiscard]] Id self() const noexcept { return known_.self; }
  [[nodiscard]] const World& world() const noexcept { return known_.world; }
  [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }
  /// The last world that this process was in; 0: none.
  [[nodiscard]] std::uint32_t epoch_entered() const noexcept { return epoch_entered_; }
  [[nodiscard]] bool agreeing() const noexcept { return phase_ != Phase::delivering; }
  [[nodiscard]] bool expelled() const noexcept { return expelled_; }
  /// Those that knew that they were members, have not ended as far as is known, and never will be members again.
  [[nodiscard]] std::vector<Id> gone() const { return known_.gone(); }
  /// Those that answer are too few to agree, and the others have been waited for long enough: `silent_after` and a
  /// little.
  [[nodiscard]] bool hopeless() const;
  /// A member that has ended in a later world, of which this process has not heard.
  [[nodiscard]] std::optional<ProcessEnd> went_on() const;
  /// Members that have not said that they hold what they need of the next step.
  [[nodiscard]] std::vector<Id> unready() const;
  /// Members that this process waits for.
  [[nodiscard]] std::vector<Id> awaited_members() const;
  /// Those that wait to be members, and of which this process has to hear whether they are.
  [[nodiscard]] std::vector<Id> awaited_newcomers() const;

 private:
  using Place = ProcessRecord::Place;
  using Life = ProcessRecord::Life;
  using Answer = ProcessRecord::Answer;
  enum class Phase : std::uint8_t {
    delivering,  // steps count, and nobody is missed
    following,   // the members agree on the next world, and another one leads, or is to
    preparing,   // this process leads, and asks what others have accepted
    proposing,   // this process leads, and has proposed a world
  };

  // Time, links and ends.
  [[nodiscard]] Time time_lived(Time clock);
  void hear_of_end(const ProcessEnd& who, Time now);
  void note_end(const ProcessEnd& who);
  void hear_rumours(const MembershipMessage& message, Time now);
  void believe_rumours(Time now);
  void miss(Time now);

  // Messages.
  void receive_in_epoch(const MembershipMessage& message, Time now);
  void receive_decided(const MembershipMessage& message, Time now);
  [[nodiscard]] std::string what_is_wrong(const MembershipMessage& message) const;
  [[nodiscard]] std::string what_is_wrong_with_ballot(const MembershipMessage& message) const;
  [[nodiscard]] std::string what_is_wrong_with_next(const Decision& next) const;
  [[nodiscard]] std::string what_is_wrong_with_decided(Id from, const Decision& decision) const;
  [[nodiscard]] bool known(Id who) const;
  [[nodiscard]] std::uint64_t most_delivered() const;
  [[nodiscard]] MembershipMessage message(MembershipMessage::Kind kind) const;
  void send(Id to, MembershipMessage message);
  void send_all(const MembershipMessage& message);

  // Steps.
  void deliver();
  void hear_of_delivery(const MembershipMessage& message);
  void ask_to_confirm();
  void confirm_if_answered();

  // The agreement.
  void begin(Time now);
  void advance(Time now);
  void begin_ballot(Time now);
  void send_ballot(Time now);
  void follow(const MembershipMessage& ballot, Time now);
  void propose_if_answered(Time now);
  void decide_if_accepted(Time now);
  void answer_prepare(const MembershipMessage& message, Time now);
  void answer_accept(const MembershipMessage& message, Time now);
  void decide(const Decision& decision, Time now);
  void place_all(const Decision& decision, Time now);
  void forget_world();
  void forget_answers();
  void tell_joiners();
  [[nodiscard]] bool leads() const noexcept { return phase_ > Phase::following; }
  void part(Ids& next) const;
  [[nodiscard]] Decision choose(Time now) const;
  void take_in(Ids& next, Time now) const;
  [[nodiscard]] MembershipMessage promise(Time now) const;
  [[nodiscard]] MembershipMessage suspicion(Time now) const;

  // Those that wait.
  void grow(Time now);
  void announce_wait(Time now);
  void receive_wait(const MembershipMessage& message, Time now);
  void record_left_out(const MembershipMessage& message);
  [[nodiscard]] bool out_of_reach(Id who) const;
  void meet(Id who, Time now);

  KnownProcesses known_;
  const bool waited_;  // it was in no world at first
  std::uint64_t delivered_;
  std::uint32_t epoch_entered_;
  std::uint64_t confirmed_ = 0;
  bool expelled_ = false;
  Time called_{};                     // when this process last ran, by its clock
  Time lived_{};                      // how long it has run, all other times are counted in this
  std::optional<Decision> latest_;    // what made this epoch, for who missed it
  std::vector<Id> notified_of_wait_;  // by this process, while it waits

  // Of this epoch.
  std::uint64_t told_ = 0;     // the last step that a member said to have delivered
  std::uint64_t entered_ = 0;  // delivered when this epoch began
  Time beaten_{};              // when the last signs of life were sent
  std::uint64_t asked_ = 0;    // by confirm(): whether this step counts; 0: nothing
  Time asked_at_{};

  // Of the agreement under way.
  Phase phase_ = Phase::delivering;
  Ballot promised_;
  Ballot accepted_;
  std::optional<Decision> value_;  // accepted in ballot accepted_
  Ids ballot_dead_;                // what who answers it knows to have ended
  Time agreeing_since_{};
  Time began_{};        // this ballot
  Time sent_{};         // its latest message
  Time waits_until_{};  // before it leads: another does

  std::vector<Outgoing> messages_;
  std::vector<News> news_;
};

}  // namespace gradwire::membership
