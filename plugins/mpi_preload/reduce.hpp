// One reduction of the job, and how it is made compressed.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <optional>
#include <span>

#include "choice/decision.hpp"
#include "drop_in/host_reducer.hpp"
#include "plugins/mpi_preload/comm_state.hpp"

namespace gradwire::mpi_preload {

/// A reduction by its arguments.
struct Reduce {
  choice::Function function;
  const void* send;
  void* receive;
  std::int64_t count;                     // elements of the larger buffer; negative: the caller's argument was wrong
  std::span<const std::uint64_t> counts;  // elements of the segments; empty: an all-reduce or a reduce
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm comm;
  std::optional<int> root = {};  // for a reduce: the only rank that gets the result

  /// Whether a rank gets the whole result, and not a segment of it or nothing.
  [[nodiscard]] bool receives_all(int rank) const { return counts.empty() && root.value_or(rank) == rank; }
};

/// The facts about a call that must be equal on all ranks.
[[nodiscard]] choice::Call describe(const Reduce& call, const CommState& state);
/// This rank's part of the library's sum afterwards: its segment of a reduce-scatter; nothing where another rank is the
/// root of a reduce.
struct Result {
  void* data = nullptr;
  std::uint64_t count = 0;
};
[[nodiscard]] Result result_of(const Reduce& call, const CommState& state);
/// To be called before the library's own call where it is made both ways.
void begin_trial(const Reduce& call, CommState& state, const drop_in::HostReducer::Route& route) noexcept
    REQUIRES(state.mutex);
/// To be called after it, unless it failed.
void end_trial(CommState& state, const Result& result, DType dtype, double library_seconds) noexcept
    REQUIRES(state.mutex);
/// Prints the reducer's messages.
void tell_lines(CommState& state) noexcept REQUIRES(state.mutex);

/// Makes a reduction compressed. If it throws an Error, the ranks are out of step.
void compress(const Reduce& call, CommState& state, const drop_in::HostReducer::Route& route) REQUIRES(state.mutex);

}  // namespace gradwire::mpi_preload
