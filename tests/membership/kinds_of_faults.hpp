// Lists the kinds of faults that simulated worlds meet. Each is drawn from the seed alone.
#pragma once

#include "tests/membership/simulation.hpp"

namespace gradwire::membership {

struct KindOfFaults {
  const char* name;
  int seeds;  // seeds of a short run
  Faults (*faults)(int seed);
};

inline Faults whole_machines_end(int seed) {
  return {.processes = 4 + seed % 5,
          .deaths = seed % 2,
          .machines = 1 + seed % 2,
          .pauses = seed % 3 / 2,
          .follow_ups = seed % 2 == 0};
}

// Resets, and every other network fault that live processes may meet.
inline Faults resets_and_silences(int seed) {
  return {.processes = 2 + seed % 7,
          .deaths = seed % 3,
          .pauses = seed % 5 / 4,
          .partitions = seed % 7 / 6,
          .resets = 1 + seed % 4,
          .isolations = seed % 4 / 2,
          .follow_ups = seed % 5 == 1,
          .forgets = seed % 2 == 0,
          .finishes = seed % 3 != 0};
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
       faults.ends_say_no_epoch = seed % 3 == 2;
       return faults;
     }},
    {"single links are reset", 30,
     [](int seed) {
       return Faults{.processes = 3 + seed % 6,
                     .deaths = 0,
                     .resets = 1 + seed % 3,
                     .forgets = seed % 2 == 0,
                     .flips = seed % 5 == 4,
                     .longest = seed % 3 == 0 ? 9000 : 1800};
     }},
    {"resets, deaths and silences", 40, resets_and_silences},
    {"one loses all links, and finds them again", 30,
     [](int seed) {
       return Faults{.processes = 2 + seed % 7,
                     .deaths = seed % 4 / 2,
                     .isolations = 1 + seed % 3,
                     .forgets = seed % 2 == 0,
                     .finishes = seed % 3 != 0};
     }},
    {"hosts are lost with their witness", 30,
     [](int seed) {
       return Faults{.processes = 2 + seed % 7,
                     .deaths = seed % 2,
                     .machines = seed % 4 / 3,
                     .lost_hosts = 1 + seed % 2,
                     .resets = seed % 3 / 2,
                     .follow_ups = seed % 5 == 0,
                     .finishes = seed % 2 == 0};
     }},
    {"a process is stopped while it writes its farewell", 30,
     [](int seed) {
       return Faults{.processes = 2 + seed % 6,
                     .deaths = seed % 3 / 2,
                     .stops = 1 + seed % 2,
                     .pauses = seed % 4 / 3,
                     .resets = seed % 5 / 4,
                     .finishes = true};
     }},
    {"bits of messages flip", 20,
     [](int seed) {
       return Faults{
           .processes = 2 + seed % 6, .deaths = seed % 3, .resets = seed % 2, .flips = true, .finishes = seed % 2 == 0};
     }},
    {"some join and some are lost", 40,
     [](int seed) {
       Faults faults = resets_and_silences(seed);
       faults.lost_hosts = seed % 4 / 2;
       faults.stops = seed % 6 / 5;
       faults.joins = 1 + seed % 3;
       faults.spares = seed % 5 / 3;
       return faults;
     }},
    // Waiting processes die and fall silent like all others. Mutations tried, each fails here: no grow(); a process
    // that is left alone does not look at spares (seed 71).
    {"spares take places", 80,
     [](int seed) {
       return Faults{.processes = 2 + seed % 5,
                     .deaths = 1 + seed % 4,
                     .machines = seed % 7 / 6,
                     .pauses = seed % 3,
                     .broken_links = seed % 5 / 4,
                     .partitions = seed % 6 / 5,
                     .spares = 1 + seed % 3,
                     .follow_ups = seed % 2 == 0,
                     .ends_say_no_epoch = seed % 3 == 2};
     }},
};

}  // namespace gradwire::membership
