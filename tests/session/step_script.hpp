// Lists the calls of the ranks in step_test, and the correct results: the rules of a step, written independently of
// Step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "session/step/step.hpp"

namespace gradwire::session {

struct Script {
  std::uint32_t tensors = 1;
  plan::Plan plan;
  Nonfinite nonfinite = Nonfinite::automatic;
  std::uint64_t steps = 4;
  std::vector<bool> flush, scale, weight;  // by step: whether it is called before the step
  std::vector<std::vector<bool>> bad;      // by step and rank: NaN in a gradient
  std::uint64_t fails_after = ~0ULL;       // number of events until one rank fails
  bool in_call = false;

  struct Expected {
    bool looks = false;  // looks for NaN before any bucket starts
    bool skipped = false;
    bool as_usual = false;
    std::vector<bool> flushes, in_mode;  // by bucket
  };
  /// Returns the correct results by step, according to the documentation of Session and Policy.
  [[nodiscard]] std::vector<Expected> expected() const;
};

bool any(const std::vector<bool>& flags);

/// With `may_fail`, one script in three has a rank that fails.
Script make_script(std::mt19937& random, std::size_t ranks, bool may_fail);

}  // namespace gradwire::session
