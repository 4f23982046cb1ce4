// The path of a call that is not passed on at once: describe, agree, decide, then compress or forward, and count.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <span>

#include "choice/decision.hpp"
#include "drop_in/ledger.hpp"
#include "plugins/mpi_preload/comm_state.hpp"
#include "plugins/mpi_preload/describe.hpp"
#include "plugins/mpi_preload/next.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "plugins/mpi_preload/reduce.hpp"

namespace gradwire::mpi_preload {

/// Whether the call is known to be too small; if so, counts it as such.
[[nodiscard]] inline bool counted_as_small(CommState& state, choice::Function function, std::int64_t count,
                                           MPI_Datatype type) noexcept {
  if (state.agrees_next()) {
    return false;  // the ranks can agree about requests in the next blocking call of any size
  }
  if (static_cast<std::uint64_t>(count) >= state.small_below.load(std::memory_order_relaxed)) {  // negative: large
    return false;
  }
  state.passed_of(function).add(bytes_of(count, type));
  return true;
}

/// Whether a call that returns a request is known to pass, without asking MPI for the state.
[[nodiscard]] inline bool request_passes_at_once(choice::Function function, std::int64_t count, MPI_Datatype type,
                                                 MPI_Op op, MPI_Comm comm) noexcept {
  note_reached(function);
  if (forwards_only()) {
    return true;
  }
  CommState* state = cached_state(comm);
  return state != nullptr && (counted_as_small(*state, function, count, type) ||
                              (!compresses() && state->known.pass({function, type, op, count})));
}

/// Whether the call is known to pass, without asking MPI, so that it only needs to be forwarded.
[[nodiscard]] inline bool passes_at_once(choice::Function function, std::int64_t count, MPI_Datatype type, MPI_Op op,
                                         MPI_Comm comm) noexcept {
  note_reached(function);
  if (forwards_only()) {
    return true;
  }
  CommState* state = cached_state(comm);
  // If ranks must agree in the next blocking call, no rank may pass it because of its own cache.
  return state != nullptr && !state->agrees_next() &&
         (counted_as_small(*state, function, count, type) || state->known.pass({function, type, op, count}));
}

/// What remains to be done about a call.
struct Verdict {
  enum class Next : std::uint8_t { done, forward, raise };
  Next next = Next::forward;
  int code = MPI_SUCCESS;  // the error to raise
  double cost = 0;         // seconds that the judgement took, while observing
  // note_seconds() adds the time of a forwarded call to these.
  KnownCall* known = nullptr;
  drop_in::CallClass* counted = nullptr;
  bool chosen = false;  // AutoCall must be told the time
  // The call is made both ways; this rank's part of the library's sum.
  bool trial = false;
  void* result = nullptr;
  std::uint64_t result_count = 0;
  DType dtype = DType::f32;
};

/// Judges a call: describes, agrees, decides, compresses or counts. Holds no lock afterwards.
[[nodiscard]] Verdict judge(const Reduce& call) noexcept;
/// The same for a call that returns a request; `done`: the request was made.
[[nodiscard]] Verdict judge_request(const Reduce& call, MPI_Request* request) noexcept;
/// Called after a forwarded call, with its time. Takes ownership of `verdict.counted`.
void note_seconds(MPI_Comm comm, const Verdict& verdict, int code, double seconds) noexcept;

/// Does the rest of a call. `forward` makes the library's own call and returns its code. Either way the job's error
/// handler may run, which may throw, jump or free the communicator: no object with a destructor is alive here, and the
/// communicator is not used after an error.
template <typename Forward>
int conclude(MPI_Comm comm, const Verdict verdict, const Forward& forward) {
  if (verdict.next == Verdict::Next::done) {
    return MPI_SUCCESS;
  }
  if (verdict.next == Verdict::Next::raise) {
    PMPI_Comm_call_errhandler(comm, verdict.code);
    return verdict.code;
  }
  const auto begin = std::chrono::steady_clock::now();
  const int code = forward();
  note_seconds(comm, verdict, code, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return code;
}

/// Counts a call that makes a persistent request.
void count_persistent(choice::Function function, std::int64_t count, MPI_Datatype type, MPI_Comm comm) noexcept;

/// To be called before MPI_Finalize: writes report and summary, and frees the states of communicators.
void finish() noexcept;

}  // namespace gradwire::mpi_preload
