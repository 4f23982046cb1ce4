// A child that a rank forks is no rank: there the drop-in prints, writes, sends and waits for nothing.
#pragma once

#include <unistd.h>

#include <atomic>

namespace gradwire::mpi_preload {

inline std::atomic<pid_t> g_rank_process = 0;

/// This process is a rank: it has initialised MPI, or makes calls of it. The first one counts.
inline void note_rank_process() noexcept {
  pid_t none = 0;
  g_rank_process.compare_exchange_strong(none, ::getpid(), std::memory_order_relaxed);
}

/// Whether this process forked off from a rank.
[[nodiscard]] inline bool in_child() noexcept {
  const pid_t rank = g_rank_process.load(std::memory_order_relaxed);
  return rank != 0 && rank != ::getpid();
}

}  // namespace gradwire::mpi_preload
