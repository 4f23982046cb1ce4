// Runs one way to choose codecs through a link schedule, with ranks as threads, a session for each, and a backward pass
// that sleeps.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gradwire/emulation.hpp"
#include "gradwire/policy.hpp"

namespace gradwire::changing_link {

struct Setting {
  LinkSchedule link;
  int ranks = 2;
  std::uint64_t steps = 0;
  int tensors = 0;
  std::uint64_t elements = 0;  // of each tensor
  std::chrono::nanoseconds compute{0};
};

/// A way to choose codecs: one policy, or several of which one is picked for each step.
struct Player {
  std::string name;
  std::vector<Policy> policies;
  std::vector<std::string> labels;                                      // codecs of the policies; "" if they choose
  std::function<std::size_t(std::chrono::nanoseconds)> pick = nullptr;  // index by the schedule's time; null: 0
};

/// A step of rank 0.
struct Step {
  double start = 0;    // seconds of the schedule's time
  double seconds = 0;  // until every gradient holds its mean
};

/// The number of buckets by codec, from a step on.
struct Use {
  std::uint64_t step = 0;
  std::map<std::string, std::uint64_t> buckets;
  std::string reason;
};

struct Trace {
  std::string name;
  std::vector<Step> steps;
  std::vector<Use> uses;     // the first one is at step 0; each further one is a switch
  double setup_seconds = 0;  // before the schedule begins: agreement, and calibration if any
  double bytes_sent = 0;     // by rank 0
  double bytes_uncompressed = 0;

  [[nodiscard]] double total_seconds() const { return steps.back().start + steps.back().seconds; }
  [[nodiscard]] std::size_t switches() const { return uses.size() - 1; }
};

[[nodiscard]] Trace play(const Setting& setting, const Player& player);

}  // namespace gradwire::changing_link
