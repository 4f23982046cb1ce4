// What simulated worlds meet, kind by kind, drawn from the seed alone.
#pragma once

#include "tests/membership/simulation.hpp"

namespace gradwire::membership {

struct KindOfFaults {
  const char* name;
  int seeds;  // of a short run
  Faults (*faults)(int seed);
};

inline Faults whole_machines_end(int seed) {
  return {.processes = 4 + seed % 5,
          .deaths = seed % 2,
          .machines = 1 + seed % 2,
          .pauses = seed % 3 / 2,
          .follow_ups = seed % 2 == 0};
}

inline constexpr KindOfFaults kKindsOfFaults[] = {
    {"deaths", 20, [](int seed) { return Faults{.processes = 2 + seed % 7, .deaths = 1 + seed % 4}; }},
    {"whole machines end", 40, whole_machines_end},
    {"deaths and silences", 20,
     [](int seed) { return Faults{.processes = 2 + seed % 7, .deaths = seed % 3, .pauses = 2}; }},
    {"all are frozen at once, and clocks jump", 40,
     [](int seed) {
       return Faults{.processes = 2 + seed % 7, .deaths = seed % 3, .freezes = 1 + seed % 3, .clock_jumps = seed % 4};
     }},
    {"one host of several is frozen", 40,
     [](int seed) {
       return Faults{.processes = 3 + seed % 6,
                     .deaths = seed % 2,
                     .freezes = seed % 3 / 2,
                     .frozen_hosts = 1 + seed % 2,
                     .clock_jumps = seed % 3,
                     .joins = seed % 4 / 3,
                     .spares = seed % 5 / 4,
                     .follow_ups = seed % 4 == 1};
     }},
    {"partitions", 20,
     [](int seed) {
       return Faults{.processes = 2 + seed % 7, .deaths = seed % 2, .broken_links = seed % 3, .partitions = 1};
     }},
    {"faults while others are dealt with", 40,
     [](int seed) {
       return Faults{.processes = 3 + seed % 6,
                     .deaths = 1 + seed % 3,
                     .pauses = seed % 4,
                     .partitions = seed % 5 / 4,
                     .follow_ups = true};
     }},
    {"links broken for ever", 20,
     [](int seed) { return Faults{.processes = 3 + seed % 5, .deaths = 0, .broken_links = 1, .for_ever = true}; }},
    {"processes join while others end", 80,
     [](int seed) {
       Faults faults = seed % 2 == 0 ? whole_machines_end(seed)
                                     : Faults{.processes = 2 + seed % 5,
                                              .deaths = seed % 4,
                                              .pauses = seed % 3,
                                              .broken_links = seed % 5 / 4,
                                              .partitions = seed % 6 / 5,
                                              .follow_ups = seed % 4 == 1};
       faults.joins = 1 + seed % 3;
       faults.spares = seed % 7 / 5;
       return faults;
     }},
    // Deaths and silences of those that wait as of all others. Tried by hand, each red here: no grow(); who is left
    // alone does not look at spares (seed 71).
    {"spares take places", 80,
     [](int seed) {
       return Faults{.processes = 2 + seed % 5,
                     .deaths = 1 + seed % 4,
                     .machines = seed % 7 / 6,
                     .pauses = seed % 3,
                     .broken_links = seed % 5 / 4,
                     .partitions = seed % 6 / 5,
                     .spares = 1 + seed % 3,
                     .follow_ups = seed % 2 == 0};
     }},
};

}  // namespace gradwire::membership
