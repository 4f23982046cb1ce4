// One reduction of the job, and how it is done compressed.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <optional>
#include <span>

#include "choice/decision.hpp"
#include "drop_in/member.hpp"
#include "plugins/mpi_preload/comm_state.hpp"

namespace gradwire::mpi_preload {

/// A reduction as its arguments say it.
struct Reduce {
  choice::Function function;
  const void* send;
  void* receive;
  std::int64_t count;                     // of the larger buffer; negative: wrong, as said by the caller
  std::span<const std::uint64_t> counts;  // of the segments; empty: an all-reduce or a reduce
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm comm;
  std::optional<int> root = {};  // of a reduce: the one rank that gets the result

  /// Whether the result is a rank's whole, not its segment of it or nothing.
  [[nodiscard]] bool receives_all(int rank) const { return counts.empty() && root.value_or(rank) == rank; }
};

/// What ranks must know of it alike.
[[nodiscard]] choice::Call describe(const Reduce& call, const CommState& state);
/// What this rank has of the library's sum afterwards: a reduce-scatter's own segment; nothing where another rank is
/// the root of a reduce.
struct Result {
  void* data = nullptr;
  std::uint64_t count = 0;
};
[[nodiscard]] Result result_of(const Reduce& call, const CommState& state);
/// Before the library's own call, where that is made both ways; under the state's mutex.
void begin_trial(const Reduce& call, CommState& state, const drop_in::Member::Route& route) noexcept;
/// After it; not where it failed.
void end_trial(CommState& state, const Result& result, DType dtype, double library_seconds) noexcept;
/// Prints what the member has to tell.
void tell_lines(CommState& state) noexcept;

/// Does it, under the state's mutex. Throws Error, and then the ranks are out of step.
void compress(const Reduce& call, CommState& state, const drop_in::Member::Route& route);

}  // namespace gradwire::mpi_preload
