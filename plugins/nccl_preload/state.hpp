// The one state of the drop-in in a process. It is never destroyed: jobs call NCCL from exit handlers too.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "drop_in/configuration.hpp"
#include "drop_in/ledger.hpp"
#include "plugins/nccl_preload/device_path.hpp"
#include "plugins/nccl_preload/known_communicators.hpp"
#include "plugins/nccl_preload/timing.hpp"

namespace gradwire::nccl_preload {

struct State {
  drop_in::Configuration configuration = drop_in::Configuration::read(false);
  choice::Settings settings{.floor_bytes = configuration.planner.floor(),
                            .device_path = has_device_path(),
                            .disabled = !configuration.disabled.empty()};
  std::uint64_t process = std::random_device{}() + (std::uint64_t{std::random_device{}()} << 32);  // unique
  std::string implementation;  // "NCCL 2.28.9"; asked at the start, since NCCL may be gone at the end of the process
  KnownCommunicators communicators;
  drop_in::Ledger ledger;
  drop_in::Observation observation{configuration.planner};
  CallTimer timer{ledger, observation};
  LargestCommunicator largest;
  std::atomic<ncclComm_t> latest = nullptr;  // communicator of the latest collective

  State();
};

[[nodiscard]] State& state();

/// Runs bookkeeping that must not disturb the job: if it throws (out of memory), a call stays uncounted.
template <typename F>
void unseen(F&& bookkeeping) noexcept {
  try {
    bookkeeping();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

/// Makes a call, which enqueues its work, and times it on the device if `timed` has a value.
template <typename F>
ncclResult_t make_timed(const std::optional<TimedCall>& timed, F&& call) {
  std::optional<CallTimer::Running> running = timed ? state().timer.begin(*timed) : std::nullopt;
  const ncclResult_t result = call();
  if (running) {
    state().timer.end(std::move(*running), result == ncclSuccess);
  }
  return result;
}

}  // namespace gradwire::nccl_preload
