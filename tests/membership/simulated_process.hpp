// Defines a process of a simulation: its state, and the packets that reach it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "membership/membership.hpp"

namespace gradwire::membership {

struct Part {
  std::uint32_t epoch;
  std::uint64_t step;
};
struct Damaged {};  // a message with flipped bits
struct Lost {};
struct Back {};
struct Came {};

struct Packet {
  Id from;
  std::variant<MembershipMessage, Part, Damaged, Lost, Back, Came, ProcessEnd> what;
};

struct SimulatedProcess {
  enum class Fate : std::uint8_t {
    lives,
    killed,    // a witness reports it
    lost,      // lost with its host: nobody reports it
    stopped,   // stopped for good
    finished,  // its steps are all made, and count
    expelled,  // it learnt that it was left out, and ended
    gave_up,   // it learnt that too few are left, and ended
    no_place,  // it waited, and nobody is left
  };

  std::unique_ptr<Membership> membership;
  Fate fate = Fate::lives;
  bool was_alone = false;    // it gave up where nobody of a later world could tell it about that world
  bool was_cut_off = false;  // cut off from all processes that went on without it
  int paused_until = 0;
  int clock = 0;         // offset of its clock from the simulation's
  int works_until = -1;  // time at which it sends its part of the next step; -1: it has sent it
  int stopped_since = -1;
  int ends_after = -1;           // number of messages until it ends; -1: it does not
  std::uint32_t epoch = 0;       // the world that it works in
  std::optional<Decision> made;  // the last decision that it has heard of, or told others
  std::uint32_t entered = 0;     // epoch that its witness knows
  std::uint64_t counted = 0;     // step that its witness knows
  std::uint64_t confirming = 0;  // the step being confirmed; 0: none
  std::uint64_t at = 0;          // the last step delivered
  int moved_at = 0;              // time at which a step was delivered, or a world began
  std::vector<Id> reaches;       // processes that it knows to be, or to have been, present
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::set<Id>> parts;
  std::map<std::uint64_t, std::uint32_t> held;     // step: epoch in which all parts arrived
  std::map<std::uint64_t, std::uint32_t> results;  // step: epoch in which it was delivered
  std::vector<Packet> inbox;

  [[nodiscard]] bool ended() const { return fate != Fate::lives && fate != Fate::stopped; }
  [[nodiscard]] bool lives() const { return fate == Fate::lives; }
  /// Returns whether all others will hear of its end sooner or later.
  [[nodiscard]] bool ended_for_certain() const { return ended() && fate != Fate::lost; }
  [[nodiscard]] Time time(int now) const { return Time(now + clock); }
  [[nodiscard]] bool is_member() const { return !membership->expelled() && !membership->world().members.empty(); }
};

using SimulatedProcesses = std::map<Id, SimulatedProcess>;

}  // namespace gradwire::membership
