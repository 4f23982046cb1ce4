// What this process knows about one process of the job, and how that changes: three states that do not depend on each
// other, and further values. The values that belong to one world (`here`) start anew with the next one.
//
//   place                    what happens                                         becomes
//   outside                  it says that it waits                                waiting
//   waiting                  it ends                                              outside
//   outside, waiting         a decision takes it in                               joining
//   outside, waiting         the decision that takes this process in, too         joined
//   joining                  all that stayed have spoken or ended: it is told     joined
//   joining, joined, member  it is in the next world, too                         member
//   joining, joined, member  the next world is without it                         outside, and `gone` if it had spoken
//
//   life                     what happens                                         becomes
//   lives                    a member says that it has ended                      rumoured
//   rumoured                 the next world begins                                lives
//   lives, rumoured          its end is certain; it is no member                  ended
//   lives, rumoured          its end is certain; it is a member                   dead; ended, if in a later world
//   dead                     its end turns out to have been in a later world      ended
//   dead                     the next world begins                                ended, until that world looks at it
//
//   answer                   what happens                                         becomes
//   any                      a ballot of this process begins                      none
//   none                     it promises                                          promised
//   promised                 this process proposes a world                        none
//   none                     it accepts that world                                accepted
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "membership/membership_message.hpp"

namespace gradwire::membership {

// Time since any moment. It may jump: only the time between two calls that are at most a few beats apart counts.
using Time = std::chrono::milliseconds;
using Ids = std::set<Id>;
[[nodiscard]] inline std::vector<Id> to_list(const Ids& ids) { return {ids.begin(), ids.end()}; }

struct ProcessRecord {
  enum class Origin : std::uint8_t {
    stranger,  // it came later, and is not known to know this process
    founder,   // it was there at the beginning
    newcomer,  // it came later, and knows this process, or is told of it
  };
  enum class Place : std::uint8_t {
    outside,  // it is in no world, as far as this process knows
    waiting,  // it is in no world either, and says that it waits
    joining,  // it was taken in by this world, and this process has yet to tell it
    joined,   // it was taken in by this world, and has been told
    member,   // it was in the world before, too, or this is the first one
  };
  enum class Life : std::uint8_t {
    lives,
    rumoured,  // others say that it has ended
    ended,     // for certain
    dead,      // for certain, and it is a member that never entered a later world: nobody has gone on with it
  };
  enum class Answer : std::uint8_t {  // to the ballot that this process leads
    none,
    promised,
    accepted,
  };

  Origin origin = Origin::stranger;
  Place place = Place::outside;
  Life life = Life::lives;
  bool gone = false;    // it knew that it was a member, and is none: it never will be one again, whatever comes late
  bool let_in = false;  // this process agrees to it as a member

  ProcessEnd end;   // if it has ended, or others say so
  Time rumoured{};  // when it was last heard, or others first said so

  std::optional<Time> cut;                    // since when it cannot be reached
  std::optional<Time> met;                    // in no world: when it last said that it waits, or was first known
  std::optional<Time> acknowledged;           // when it was last told that this process knows that it waits
  std::optional<std::uint64_t> joined_after;  // the last step that was delivered when it joined

  struct Wait {
    Time said{};  // when it last said that it waits
    Ids ended;    // the ends of which it had heard then
    Ids known;    // the processes that had told it that they know of it
  } wait;

  // These two count while this process itself waits.
  bool knows_of_wait = false;  // it has said that it knows that this process waits
  std::optional<Time> spoke;   // when it last said anything

  struct InWorld {
    Time heard{};                 // when it was last heard, or the world began
    bool present = false;         // it has spoken in this world
    std::uint64_t ready = 0;      // the last step that it holds
    std::uint64_t delivered = 0;  // the last step that it said to have delivered
    Ids doubts;                   // the members that it cannot hear, as it said last
    bool missed = false;          // a step on this process waited for it
    bool misses_self = false;     // it cannot hear this process, or one of its steps waited for this process
    bool distrusted = false;      // it said what it cannot have said
    Answer answer = Answer::none;
    MembershipMessage promise;  // what it has promised
  } here;

  // How it was at the end of the previous world, until the process shows that the two can reach each other.
  bool was_unheard = false;
  bool was_missed = false;

  [[nodiscard]] bool at_start() const noexcept { return origin == Origin::founder; }
  [[nodiscard]] bool is_member() const noexcept { return place >= Place::joining; }
  [[nodiscard]] bool is_waiting() const noexcept { return place == Place::waiting; }
  [[nodiscard]] bool has_ended() const noexcept { return life >= Life::ended; }

  // The transitions of the tables above.
  void be_at_start() { origin = Origin::founder; }
  void become_known() { origin = at_start() ? Origin::founder : Origin::newcomer; }
  void say_waits(Time now, Ids ended, Ids known) {
    place = Place::waiting;
    wait = {now, std::move(ended), std::move(known)};
  }
  /// With `is_to_be_told` this process, which was in the previous world, has to tell the new member.
  void join(bool is_to_be_told, std::uint64_t delivered) {
    place = is_to_be_told ? Place::joining : Place::joined;
    joined_after = delivered;
  }
  void be_told() { place = Place::joined; }
  void stay() { place = Place::member; }
  /// A process that has not spoken may not have learnt that it was a member, and may still wait.
  void leave(Time now) {
    place = Place::outside;
    met = now;
    gone = gone || here.present;
  }

  void hear_rumour(const ProcessEnd& report, Time now) {
    if (life == Life::lives) {
      life = Life::rumoured;
      end = report;
      rumoured = now;
    }
  }
  /// If there are two reports, the one that names the later world counts. `epoch` is that of this process.
  void note_end(const ProcessEnd& report, std::uint32_t epoch) {
    if (!has_ended() || std::tie(end.epoch, end.step) < std::tie(report.epoch, report.step)) {
      end = report;
    }
    if (is_waiting()) {
      place = Place::outside;
    }
    // The later world that it entered may have counted steps that this process has not heard of.
    life = is_member() && end.epoch <= epoch ? Life::dead : Life::ended;
    cut.reset();
  }

  void give_promise(MembershipMessage said) {
    here.answer = Answer::promised;
    here.promise = std::move(said);
  }
  void accept() { here.answer = Answer::accepted; }
  void forget_answer() { here.answer = Answer::none; }

  /// The silence of the process counts from `now` on.
  void forget_silence(Time now) {
    here.heard = wait.said = rumoured = now;
    for (std::optional<Time>* last : {&met, &spoke}) {
      if (*last) {
        *last = now;
      }
    }
  }
  /// A step was delivered, so all links work.
  void forget_missed_steps() { here.missed = here.misses_self = was_missed = false; }
  void forget_world() {
    here = {};
    if (life == Life::rumoured) {
      life = Life::lives;
    } else if (life == Life::dead) {
      life = Life::ended;  // until the next world looks at its end
    }
  }
};

}  // namespace gradwire::membership
