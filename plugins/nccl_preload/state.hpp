// The one state of the shim in a process. It is never destroyed: jobs call NCCL from exit handlers too.
#pragma once

#include <string>

#include "plugins/nccl_preload/communicators.hpp"
#include "plugins/nccl_preload/counters.hpp"

namespace gradwire::nccl_preload {

struct State {
  Communicators communicators;
  Counters counters;
};

[[nodiscard]] State& state();

/// "NCCL 2.28.9", asked once.
[[nodiscard]] const std::string& library_name();

/// What decide() goes by, from the environment, read once.
[[nodiscard]] const shim::Settings& settings();

/// Runs bookkeeping that must not disturb the job: whatever it throws (memory that ran out) leaves a call uncounted.
template <typename F>
void unseen(F&& bookkeeping) noexcept {
  try {
    bookkeeping();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace gradwire::nccl_preload
