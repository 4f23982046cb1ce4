// The way of a call that is not passed on at once: describe, agree, decide, then compress or forward, and count.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <span>

#include "api/shim/decision.hpp"
#include "plugins/mpi_preload/comm_state.hpp"
#include "plugins/mpi_preload/describe.hpp"

namespace gradwire::mpi_preload {

/// A reduction as its arguments say it.
struct Reduce {
  shim::Function function;
  const void* send;
  void* receive;
  std::int64_t count;                     // of the larger buffer; negative: wrong, as said by the caller
  std::span<const std::uint64_t> counts;  // of the segments; empty: an all-reduce
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm comm;
};

/// True, and counted, where the call is known to be too small: nothing more is to be done than forward it.
[[nodiscard]] inline bool passes_at_once(shim::Function function, std::int64_t count, MPI_Datatype type,
                                         MPI_Comm comm) noexcept {
  CommState* state = cached_state(comm);
  if (state == nullptr ||
      static_cast<std::uint64_t>(count) >= state->small_below.load(std::memory_order_relaxed)) {  // negative: large
    return false;
  }
  state->passed_of(function).add(bytes_of(count, type));
  return true;
}

/// `forward` makes the library's own call and returns its code.
[[nodiscard]] int run(const Reduce& call, const std::function<int()>& forward) noexcept;

/// Counts a call that returns a request.
void count_nonblocking(shim::Function function, std::int64_t count, MPI_Datatype type, MPI_Comm comm) noexcept;

/// Report, summary, and the end of all that hangs on communicators: what MPI_Finalize needs done first.
void finish() noexcept;

}  // namespace gradwire::mpi_preload
