// Chooses which faults a simulation plays, and when.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace gradwire::membership {

struct Faults {
  int processes = 4;
  int deaths = 1;
  int machines = 0;         // times that two or three processes end together
  int lost_hosts = 0;       // times that one or two processes end together, and no witness says so
  int stops = 0;            // processes that stop for good, perhaps while they write a farewell
  int pauses = 0;           // pauses of a process, 0.1 to 9 s
  int broken_links = 0;     // broken links of a pair, in one direction or both, 0.1 to 9 s
  int partitions = 0;       // partitions into two halves, 0.1 to 9 s
  int resets = 0;           // resets of a pair, in one direction or both, 0.01 to 9 s; both ends hear of one above 1 s
  int isolations = 0;       // resets of all links of a process, likewise
  int freezes = 0;          // pauses of all processes at once, 0.1 to 9 s: they go on within 50 ms of each other
  int frozen_hosts = 0;     // pauses of a third of the processes, likewise
  int clock_jumps = 0;      // jumps of one process's clock, by up to 54 s, forward or back
  int joins = 0;            // new processes that join
  int spares = 0;           // processes that wait from the start
  bool follow_ups = false;  // faults strike while others are being handled
  bool for_ever = false;    // broken links stay broken
  bool forgets = false;     // some messages are lost in a reset
  bool flips = false;       // some bits of messages flip
  bool finishes = false;    // processes leave once their steps are made
  bool ends_say_no_epoch = false;
  int longest = 9000;  // the longest fault in ms
};

struct Fault {
  enum class Kind : std::uint8_t {
    death,
    machine,
    lost_host,
    stop,
    pause,
    link,
    partition,
    reset,
    isolation,
    freeze,
    host,
    jump,
    join
  } kind;
  int at;
  int length;
  int follows = 0;
};

/// Draws the times of all faults, and the faults that follow another one.
class FaultPlan {
 public:
  FaultPlan(std::mt19937& random, const Faults& faults) : random_(random), faults_(faults) {
    using Kind = Fault::Kind;
    constexpr int kFaultsEnd = 12'000;
    for (const auto& [kind, count] : std::initializer_list<std::pair<Kind, int>>{{Kind::death, faults.deaths},
                                                                                 {Kind::machine, faults.machines},
                                                                                 {Kind::lost_host, faults.lost_hosts},
                                                                                 {Kind::stop, faults.stops},
                                                                                 {Kind::reset, faults.resets},
                                                                                 {Kind::isolation, faults.isolations},
                                                                                 {Kind::pause, faults.pauses},
                                                                                 {Kind::link, faults.broken_links},
                                                                                 {Kind::partition, faults.partitions},
                                                                                 {Kind::freeze, faults.freezes},
                                                                                 {Kind::host, faults.frozen_hosts},
                                                                                 {Kind::jump, faults.clock_jumps},
                                                                                 {Kind::join, faults.joins}}) {
      for (int i = 0; i < count; ++i) {
        const int at = draw(10, kFaultsEnd);
        plan_.push_back({kind, at, draw(100, faults.longest)});
      }
    }
    sort();
  }

  /// Returns the next fault that is due at `now`, if any. Often another fault strikes while it lasts.
  [[nodiscard]] std::optional<Fault> take(int now) {
    if (plan_.empty() || plan_.back().at > now) {
      return std::nullopt;
    }
    const Fault fault = plan_.back();
    plan_.pop_back();
    if (faults_.follow_ups && fault.follows < 2 && draw(0, 1) == 0) {
      const bool dies = faults_.deaths > 0 && draw(0, 2) == 0;
      const int at = now + draw(1, 120);
      plan_.push_back({dies ? Fault::Kind::death : Fault::Kind::pause, at, draw(100, 9000), fault.follows + 1});
      sort();
    }
    return fault;
  }

 private:
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  void sort() {
    std::sort(plan_.begin(), plan_.end(), [](const Fault& a, const Fault& b) { return a.at > b.at; });
  }

  std::mt19937& random_;
  const Faults faults_;
  std::vector<Fault> plan_;
};

}  // namespace gradwire::membership
