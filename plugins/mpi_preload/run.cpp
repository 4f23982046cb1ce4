#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "plugins/mpi_preload/device_memory.hpp"
#include "plugins/mpi_preload/interpose.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "plugins/mpi_preload/status.hpp"

namespace gradwire::mpi_preload {
namespace {

// MPI_ERR_BUFFER is the library's to give; Open MPI takes them in a reduce-scatter.
bool aliased(const Reduce& call) {
#ifdef OPEN_MPI
  const bool refused = call.counts.empty();
#else
  constexpr bool refused = true;
#endif
  return refused && call.send == call.receive && call.count != 0;
}

drop_in::Call describe(const Reduce& call, const CommState& state) {
  const bool empty = call.count == 0;
  // A rank without a segment may give no buffer for it; the others must not decide otherwise.
  const bool receives = call.counts.empty() || call.counts[static_cast<std::size_t>(state.rank)] > 0;
  return {.function = call.function,
          .dtype = dtype_of(call.type),
          .reduction = reduction_of(call.op),
          .count = call.count > 0 ? static_cast<std::uint64_t>(call.count) : 0,
          .world_size = state.size,
          .valid = call.count >= 0 && call.type != MPI_DATATYPE_NULL && call.op != MPI_OP_NULL &&
                   call.receive != MPI_IN_PLACE && !aliased(call) &&
                   (empty || (call.send != nullptr && (call.receive != nullptr || !receives))),
          .intra = !state.inter};
}

// Not allowed by MPI, but what jobs do.
bool overlap(const std::byte* a, std::uint64_t a_bytes, const std::byte* b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// The job's input is only read.
void* input_of(const Reduce& call) { return call.send == MPI_IN_PLACE ? call.receive : const_cast<void*>(call.send); }

void all_reduce(const Reduce& call, CommState& state, const drop_in::Member::Route& route) {
  const DType dtype = *route.what.dtype;
  const std::uint64_t count = route.what.count;
  const std::uint64_t bytes = count * element_bytes(dtype);
  void* const from = input_of(call);
  const bool in_place = from == call.receive;
  const HostBuffer output(call.receive, bytes, in_place);
  if (in_place) {
    state.member->all_reduce(route, {output.data(), count, dtype}, {output.data(), count, dtype});
  } else {
    const HostBuffer input(from, bytes, true);
    const std::byte* read = input.data();
    if (overlap(read, bytes, output.data(), bytes)) {
      std::memmove(output.data(), read, bytes);
      read = output.data();
    }
    state.member->all_reduce(route, {read, count, dtype}, {output.data(), count, dtype});
  }
  output.write_back(bytes);
}

void reduce_scatter(const Reduce& call, CommState& state, const drop_in::Member::Route& route) {
  const DType dtype = *route.what.dtype;
  const std::uint64_t each = element_bytes(dtype);
  const auto self = static_cast<std::size_t>(state.rank);
  const std::uint64_t own = call.counts[self];
  const auto before = call.counts.first(self);
  const std::uint64_t offset = std::accumulate(before.begin(), before.end(), std::uint64_t{0}) * each;
  const HostBuffer input(input_of(call), route.what.count * each, true);
  const ConstView all{input.data(), route.what.count, dtype};
  if (call.send != MPI_IN_PLACE) {
    const HostBuffer output(call.receive, own * each, false);
    if (overlap(input.data(), route.what.count * each, output.data(), own * each)) {
      const auto scratch = std::make_unique_for_overwrite<std::byte[]>(own * each);
      state.member->reduce_scatter(route, all, {scratch.get(), own, dtype}, call.counts);
      std::memcpy(output.data(), scratch.get(), own * each);
    } else {
      state.member->reduce_scatter(route, all, {output.data(), own, dtype}, call.counts);
    }
    output.write_back(own * each);
    return;
  }
  // MPI wants the result at the front, where rank 0's segment is read; it is made in its own, then moved.
  std::byte* result = input.data() + offset;
  state.member->reduce_scatter(route, all, {result, own, dtype}, call.counts);
  std::memmove(input.data(), result, own * each);
  input.write_back(own * each);
}

void compress(const Reduce& call, CommState& state, const drop_in::Member::Route& route) {
  const auto begin = std::chrono::steady_clock::now();
  call.counts.empty() ? all_reduce(call, state, route) : reduce_scatter(call, state, route);
  if (route.turn.timed) {
    state.member->measured(seconds_since(begin));
  }
  tell_of_compressed(state);
}

// Counts what is to be forwarded: in short where calls like it are not looked at any more.
Verdict count(const Reduce& call, CommState& state, const drop_in::Member::Route& route) {
  Verdict verdict{.chosen = route.turn.timed};
  const std::uint64_t bytes = bytes_of(call.count, call.type);
  try {
    if (route.lasting || route.choice) {
      verdict.known = state.known.remember({call.function, call.type, call.op, call.count}, bytes, route);
    }
    if (verdict.known == nullptr) {
      state.member->count_passed(route, bytes, 0);
      verdict.counted = std::make_unique<drop_in::CallClass>(route.what).release();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): what is not counted is still forwarded
  }
  return verdict;
}

// Compresses, or counts what is to be forwarded.
Verdict decide_and_do(const Reduce& call, CommState& state) {
  state.reach_agreement();
  const void* buffer = call.send == MPI_IN_PLACE ? call.receive : call.send;
  const std::string name = name_of_buffer(buffer);
  const drop_in::Member::Route route = state.member->route(
      describe(call, state), name_of_op(call.op), {.name = name, .buffer = buffer, .others = state.passed_calls()});
  if (route.decision.compress && !state.member->dry_run()) {
    compress(call, state, route);
    return {.next = Verdict::Next::done};
  }
  return count(call, state, route);
}

}  // namespace

Verdict judge(const Reduce& call) noexcept {
  CommState* state = find_state(call.comm);
  // Small calls on more communicators than the cache holds.
  if (state == nullptr || counted_as_small(*state, call.function, call.count, call.type)) {
    return {};
  }
  try {
    std::string failure;
    {
      const std::lock_guard lock(state->mutex);
      if (state->failure.empty()) {
        try {
          return decide_and_do(call, *state);
        } catch (...) {
          state->failure = current_error().what();
          state->small_below = 0;
        }
      }
      failure = state->failure;
    }
    return {.next = Verdict::Next::raise, .code = announce(failure)};
  } catch (...) {  // out of memory
    return {.next = Verdict::Next::raise, .code = MPI_ERR_OTHER};
  }
}

void note_seconds(MPI_Comm comm, const Verdict& verdict, int code, double seconds) noexcept {
  const std::unique_ptr<drop_in::CallClass> owned(verdict.counted);
  try {
    if (owned != nullptr) {
      process().ledger.add(*owned, {.seconds = seconds});
    }
    if (code != MPI_SUCCESS || (verdict.known == nullptr && !verdict.chosen)) {
      return;
    }
    CommState* state = find_state(comm);
    if (state == nullptr) {
      return;
    }
    const std::lock_guard lock(state->mutex);
    if (verdict.known != nullptr) {
      ++verdict.known->timed;
      verdict.known->seconds += seconds;
    }
    if (verdict.chosen) {
      state->member->measured(seconds);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the call has succeeded
  }
}

void count_nonblocking(drop_in::Function function, std::int64_t count, MPI_Datatype type, MPI_Comm comm) noexcept {
  if (CommState* state = find_state(comm)) {
    state->passed_of(function).add(bytes_of(count, type));
  }
}

}  // namespace gradwire::mpi_preload
