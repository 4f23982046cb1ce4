// One process's part in agreeing on who takes part and which steps count: a state machine without clock, lock or
// transport. Observations and messages go in and messages come out; what was agreed on is read from its state.
//
// A step is delivered once every member has said that it holds all it needs (two-phase commit), so a member that
// delivers knows that all others can. When a member is missed, the others stop delivering and agree on the next world
// and on the last step delivered, by Paxos (Lamport, "Paxos made simple", 2001) among the members. A member is missed
// in one of two ways. A process that has ended, as it said itself or a witness did, is known to have ended. A process
// that is silent or cannot be reached may come back, so only more than half of the members, or half with the lowest,
// may leave it out. A process that was left out learns that from the first member that it talks to, since its messages
// carry an epoch that is over. Messages from one process to another arrive in the order in which they were sent; some
// may be lost if cut() or distrust() reports that.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "membership/known_processes.hpp"
#include "membership/membership_message.hpp"
#include "membership/process_record.hpp"

namespace gradwire::membership {

/// `who` has said something that no process says which keeps to the rules.
struct Distrusted {
  Id who;
  std::string why;
};

class Membership {
 public:
  struct Outgoing {
    Id to;
    MembershipMessage message;
  };

  /// `world` has no members on a process that waits.
  Membership(Id self, World world, std::uint64_t delivered, MembershipSettings settings, Time now);

  /// This process holds all that it needs for `step`.
  void ready(std::uint64_t step);
  /// `who` has ended for certain: it said so, or a witness did. If it had entered a later world than this process,
  /// others went on with it, so it counts here as a process that may still decide.
  void dead(const ProcessEnd& who, Time clock);
  /// Nothing reaches `who` or comes from it for now, and messages may have been lost. The process may live.
  void cut(Id who, Time clock);
  /// The way to `who` works again.
  void back(Id who) { known_[who].cut.reset(); }
  /// A step has waited for `who` for too long, though it may give signs of life to others.
  void missed(Id who, Time clock);
  /// A message from `who` was lost, though the way there works.
  void damaged(Id who, Time clock);
  /// `who` has said what it cannot have said: one of the two processes has to go.
  void distrust(Id who, const std::string& why, Time clock);

  /// Asks the members whether they have delivered `step`, as this one has, until a quorum says so; see confirmed(). To
  /// be called once the end of this process would report that step (ProcessEnd::step).
  void confirm(std::uint64_t step);
  /// Every step up to this one counts in all later worlds, whatever becomes of this process.
  [[nodiscard]] std::uint64_t confirmed() const noexcept { return confirmed_; }
  /// Members that have not answered confirm().
  [[nodiscard]] std::vector<Id> unconfirmed() const;

  /// To be called on a process that is in no world: it tells `others` every beat that it waits, until it is in a world.
  /// To be called again when there are more of them.
  void wait_among(std::vector<Id> others);
  /// `who` may become a member: a spare while members are missing, a process that has joined always. If it waits, it is
  /// in the next world. If nothing else makes a new world, this does once a step is delivered.
  void let_in(Id who) { known_[who].let_in = true; }
  /// On a process that waits: the processes that have not said that they know of it.
  [[nodiscard]] std::vector<Id> unaware() const;
  /// On a process that waits: whether all others have ended, were left out, cannot be reached, or wait and know that.
  [[nodiscard]] bool alone() const;

  /// Ends this process in good order, with last words to the members.
  void leave();
  void receive(const MembershipMessage& message, Time clock);
  /// To be called at least every `beat`. A process that was not called in time, for example because it was stopped
  /// together with the others, knows nothing about their silence and begins to count anew.
  void tick(Time clock);

  /// Returns the messages to send since the last call. A process must not send a message of a later epoch than it has
  /// told its witness.
  [[nodiscard]] std::vector<Outgoing> take_messages();
  /// Returns the members that this process has begun to distrust since the last call.
  [[nodiscard]] std::vector<Distrusted> take_distrusted();

  [[nodiscard]] Id self() const noexcept { return known_.self; }
  [[nodiscard]] const World& world() const noexcept { return known_.world; }
  /// The last step that counts here: all members hold what they need for it, or the world was agreed on with it. When
  /// the world changes, steps under way after it are to be undone.
  [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }
  /// The last world that this process was in; 0: none.
  [[nodiscard]] std::uint32_t epoch_entered() const noexcept { return epoch_entered_; }
  [[nodiscard]] bool agreeing() const noexcept { return phase_ != Phase::delivering; }
  /// Whether the others went on without this process, which must not send to them any more.
  [[nodiscard]] bool expelled() const noexcept { return expelled_; }
  /// The processes that knew that they were members, have not ended as far as is known, and never will be members
  /// again.
  [[nodiscard]] std::vector<Id> gone() const { return known_.gone(); }
  /// Whether the members that answer are too few to agree, and the others have been waited for long enough:
  /// `silent_after` and a little.
  [[nodiscard]] bool hopeless() const;
  /// The end of a member in a later world of which this process has not heard, if there is one.
  [[nodiscard]] std::optional<ProcessEnd> went_on() const;
  /// Members that have not said that they hold what they need for the next step.
  [[nodiscard]] std::vector<Id> unready() const;
  /// Members that this process waits for.
  [[nodiscard]] std::vector<Id> awaited_members() const;
  /// Waiting processes from which this one has to hear whether they have become members.
  [[nodiscard]] std::vector<Id> awaited_newcomers() const;

 private:
  using Place = ProcessRecord::Place;
  using Life = ProcessRecord::Life;
  using Answer = ProcessRecord::Answer;
  enum class Phase : std::uint8_t {
    delivering,  // steps count, and nobody is missed
    following,   // the members agree on the next world, and another process leads or is to lead
    preparing,   // this process leads, and asks what the members have accepted
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
  [[nodiscard]] std::string find_fault(const MembershipMessage& message) const;
  [[nodiscard]] std::string find_fault_of_ballot(const MembershipMessage& message) const;
  [[nodiscard]] std::string find_fault_of_next(const Decision& next) const;
  [[nodiscard]] std::string find_fault_of_decided(Id from, const Decision& decision) const;
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

  // Waiting processes.
  void grow(Time now);
  void announce_wait(Time now);
  void receive_wait(const MembershipMessage& message, Time now);
  void record_left_out(const MembershipMessage& message);
  [[nodiscard]] bool out_of_reach(Id who) const;
  void meet(Id who, Time now);

  KnownProcesses known_;
  const bool waited_;  // this process was in no world at first
  std::uint64_t delivered_;
  std::uint32_t epoch_entered_;
  std::uint64_t confirmed_ = 0;
  bool expelled_ = false;
  Time called_{};                     // when this process last ran, by its clock
  Time lived_{};                      // how long it has run; all other times are counted in this
  std::optional<Decision> latest_;    // the decision that made this epoch, for processes that missed it
  std::vector<Id> notified_of_wait_;  // processes that this one notified while it waited

  // State of this epoch.
  std::uint64_t told_ = 0;     // the last step that a member said it had delivered
  std::uint64_t entered_ = 0;  // the last step delivered when this epoch began
  Time beaten_{};              // when the last signs of life were sent
  std::uint64_t asked_ = 0;    // the step that confirm() asks about; 0: none
  Time asked_at_{};

  // State of the agreement under way.
  Phase phase_ = Phase::delivering;
  Ballot promised_;
  Ballot accepted_;
  std::optional<Decision> value_;  // accepted in ballot accepted_
  Ids ballot_dead_;                // the ends that every process which answers the ballot knows
  Time agreeing_since_{};
  Time began_{};        // when this ballot began
  Time sent_{};         // when its latest message was sent
  Time waits_until_{};  // before then another process is to lead

  std::vector<Outgoing> messages_;
  std::vector<Distrusted> distrusted_;
};

}  // namespace gradwire::membership
