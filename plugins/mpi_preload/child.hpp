// A forked child of a rank is no rank: there the drop-in does not print, write, send or wait.
#pragma once

#include <unistd.h>

#include <atomic>

namespace gradwire::mpi_preload {

inline std::atomic<pid_t> g_rank_process = 0;

/// Notes that this process is a rank, since it has initialised MPI or makes calls of it. The first call counts.
inline void note_rank_process() noexcept {
  pid_t none = 0;
  g_rank_process.compare_exchange_strong(none, ::getpid(), std::memory_order_relaxed);
}

/// Whether this process is a forked child of a rank.
[[nodiscard]] inline bool in_child() noexcept {
  const pid_t rank = g_rank_process.load(std::memory_order_relaxed);
  return rank != 0 && rank != ::getpid();
}

}  // namespace gradwire::mpi_preload
