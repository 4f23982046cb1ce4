// How a module that records events starts the library `watch`, which writes metrics, traces and histories. That library
// is built on top of these modules, and a program may leave it out (gradwire/without_watch.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gradwire::observe {

/// Calls of a job that a drop-in replaced or passed on.
struct ReplacedCalls {
  std::string function;  // "MPI_Allreduce"
  std::string reason;    // the reason for passing them on; empty: they were compressed
  std::uint64_t calls = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_sent = 0;
  double seconds = 0;
  std::uint64_t bytes_dense = 0;  // bytes that a perfect uncompressed algorithm would send
};

struct WatchedProcess {
  std::string part = "library";  // the part of gradwire that watches: "library", "mpi", "nccl", "torch"
  /// Returns this process's rank, where it is known better than from its first session: there is none yet, or never
  /// one.
  std::function<std::optional<int>()> rank = {};
  int world_size = 1;                                         // ranks of the job, where that is known without a session
  std::function<std::vector<ReplacedCalls>()> replaced = {};  // one thread at a time
  std::function<void(const std::string&)> warn = {};          // none: warn()
  std::string job = {};                                       // its name; empty: watch() finds it (job_name())
};

/// Begins to write the files that GRADWIRE_METRICS, GRADWIRE_TRACE and GRADWIRE_REPORT ask for, at the first call of a
/// process; later calls do nothing. A wrong value is logged once, and the job goes on. False: the program has no
/// `watch`. The library defines this function, and so does gradwire/without_watch.hpp, whose definition then replaces
/// it.
bool watch(const WatchedProcess& process) noexcept;

/// Logs one line per process saying that this program leaves `watch` out, if one of those variables is set.
void say_that_nobody_watches(const WatchedProcess& process) noexcept;

/// Logs a warning. Without a log it goes to standard error, unless GRADWIRE_LOG turns warnings off.
void warn(const std::string& text);

/// May be called from any thread. It is inline so that only programs that record something link `watch`.
inline void begin_watching(const WatchedProcess& process = {}) noexcept {
  if (!watch(process)) {
    say_that_nobody_watches(process);
  }
}

}  // namespace gradwire::observe
