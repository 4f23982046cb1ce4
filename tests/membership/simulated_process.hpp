// A process of a simulation: what it has, and what comes to it.
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
struct Damaged {};  // a message of which bits have flipped
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
    killed,    // and a witness says so
    lost,      // with its host: nobody says so
    stopped,   // for ever
    finished,  // all its steps are made, and count
    expelled,  // it knows, and ended
    gave_up,   // it knows that too few are left, and ended
    no_place,  // it waited, and nobody is left
  };

  std::unique_ptr<Membership> membership;
  Fate fate = Fate::lives;
  bool was_alone = false;    // it gave up where nobody of a later world could tell it of that
  bool was_cut_off = false;  // from all that went on without it
  int paused_until = 0;
  int clock = 0;         // what its clock shows beside the simulation's
  int works_until = -1;  // then it sends its part of the next step; -1: it has
  int stopped_since = -1;
  int ends_after = -1;           // so many messages; -1: it does not
  std::uint32_t epoch = 0;       // the world that it works in
  std::optional<Decision> made;  // the last decision that it has heard of, or told others
  std::uint32_t entered = 0;     // as its witness knows
  std::uint64_t counted = 0;     // as its witness knows
  std::uint64_t confirming = 0;  // step; 0: none
  std::uint64_t at = 0;          // the last step delivered
  int moved_at = 0;              // when a step was delivered, or a world began
  std::vector<Id> reaches;       // those that it knows to be there, or to have been
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::set<Id>> parts;
  std::map<std::uint64_t, std::uint32_t> held;     // step: epoch in which all parts came
  std::map<std::uint64_t, std::uint32_t> results;  // step: epoch, delivered
  std::vector<Packet> inbox;

  [[nodiscard]] bool ended() const { return fate != Fate::lives && fate != Fate::stopped; }
  [[nodiscard]] bool lives() const { return fate == Fate::lives; }
  /// All others hear of it sooner or later.
  [[nodiscard]] bool ended_for_certain() const { return ended() && fate != Fate::lost; }
  [[nodiscard]] Time time(int now) const { return Time(now + clock); }
  [[nodiscard]] bool is_member() const { return !membership->expelled() && !membership->world().members.empty(); }
};

using SimulatedProcesses = std::map<Id, SimulatedProcess>;

}  // namespace gradwire::membership
