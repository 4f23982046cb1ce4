#include "plugins/mpi_preload/reduce.hpp"

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/elapsed.hpp"
#include "plugins/mpi_preload/describe.hpp"
#include "plugins/mpi_preload/device_memory.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "plugins/mpi_preload/status.hpp"

namespace gradwire::mpi_preload {
namespace {

// Whether the buffers are aliased. The library gives MPI_ERR_BUFFER for that; Open MPI allows it in a reduce-scatter.
bool aliased(const Reduce& call, int rank) {
#ifdef OPEN_MPI
  const bool refused = call.counts.empty();
#else
  constexpr bool refused = true;
#endif
  return refused && call.root.value_or(rank) == rank && call.send == call.receive && call.count != 0;
}

// Whether the buffers overlap, which MPI forbids, but jobs do.
bool overlap(const std::byte* a, std::uint64_t a_bytes, const std::byte* b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// The input of a call, which is only read.
void* input_of(const Reduce& call) { return call.send == MPI_IN_PLACE ? call.receive : const_cast<void*>(call.send); }

// Makes a reduce on a rank that is not the root. The rank needs memory for the result, but that costs no time: the
// root's incoming link limits a reduce, and it is as full when only the root takes part in the second hop.
void reduce_elsewhere(const Reduce& call, CommState& state, const drop_in::HostReducer::Route& route)
    REQUIRES(state.mutex) {
  const DType dtype = *route.what.dtype;
  const std::uint64_t count = route.what.count;
  const HostBuffer input(const_cast<void*>(call.send), count * element_bytes(dtype), true);
  const auto unused = std::make_unique_for_overwrite<std::byte[]>(count * element_bytes(dtype));
  state.reducer->all_reduce(route, {input.data(), count, dtype}, {unused.get(), count, dtype});
}

void all_reduce(const Reduce& call, CommState& state, const drop_in::HostReducer::Route& route) REQUIRES(state.mutex) {
  if (!call.receives_all(state.rank)) {
    return reduce_elsewhere(call, state, route);
  }
  const DType dtype = *route.what.dtype;
  const std::uint64_t count = route.what.count;
  const std::uint64_t bytes = count * element_bytes(dtype);
  void* const from = input_of(call);
  const bool in_place = from == call.receive;
  const HostBuffer output(call.receive, bytes, in_place);
  if (in_place) {
    state.reducer->all_reduce(route, {output.data(), count, dtype}, {output.data(), count, dtype});
  } else {
    const HostBuffer input(from, bytes, true);
    const std::byte* read = input.data();
    if (overlap(read, bytes, output.data(), bytes)) {
      std::memmove(output.data(), read, bytes);
      read = output.data();
    }
    state.reducer->all_reduce(route, {read, count, dtype}, {output.data(), count, dtype});
  }
  output.write_back(bytes);
}

void reduce_scatter(const Reduce& call, CommState& state, const drop_in::HostReducer::Route& route)
    REQUIRES(state.mutex) {
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
      state.reducer->reduce_scatter(route, all, {scratch.get(), own, dtype}, call.counts);
      std::memcpy(output.data(), scratch.get(), own * each);
    } else {
      state.reducer->reduce_scatter(route, all, {output.data(), own, dtype}, call.counts);
    }
    output.write_back(own * each);
    return;
  }
  // MPI wants the result at the front, where rank 0's segment is read, so it is made in this rank's segment and then
  // moved.
  std::byte* result = input.data() + offset;
  state.reducer->reduce_scatter(route, all, {result, own, dtype}, call.counts);
  std::memmove(input.data(), result, own * each);
  input.write_back(own * each);
}

}  // namespace

choice::Call describe(const Reduce& call, const CommState& state) {
  const bool empty = call.count == 0;
  // A rank that receives nothing may give no buffer; other ranks must still decide in the same way.
  const bool receives =
      call.counts.empty() ? call.receives_all(state.rank) : call.counts[static_cast<std::size_t>(state.rank)] > 0;
  const bool rooted = !call.root || state.inter || (*call.root >= 0 && *call.root < state.size);
  return {.function = call.function,
          .dtype = dtype_of(call.type),
          .reduction = reduction_of(call.op),
          .count = call.count > 0 ? static_cast<std::uint64_t>(call.count) : 0,
          .world_size = state.size,
          .valid = call.count >= 0 && call.type != MPI_DATATYPE_NULL && call.op != MPI_OP_NULL &&
                   (!receives || call.receive != MPI_IN_PLACE) && !aliased(call, state.rank) && rooted &&
                   (!call.root || receives || call.send != MPI_IN_PLACE) &&
                   (empty || (call.send != nullptr && (call.receive != nullptr || !receives))),
          .known = !state.foreign,
          .intra = !state.inter};
}

Result result_of(const Reduce& call, const CommState& state) {
  if (!call.counts.empty()) {
    return {call.receive, call.counts[static_cast<std::size_t>(state.rank)]};
  }
  return call.receives_all(state.rank) ? Result{call.receive, static_cast<std::uint64_t>(call.count)} : Result{};
}

void begin_trial(const Reduce& call, CommState& state, const drop_in::HostReducer::Route& route) noexcept {
  void* const from = input_of(call);
  const std::uint64_t bytes = route.what.count * element_bytes(*route.what.dtype);
  try {
    const HostBuffer input(from, bytes, true);
    // GPU memory is in a copy that ends with this function, so the reducer takes a copy of its own.
    const auto* const result = static_cast<const std::byte*>(call.receive);
    const bool shared = result != nullptr && overlap(input.data(), bytes, result, bytes);
    const bool copy = shared || input.data() != from;
    state.reducer->begin_trial(route, {input.data(), route.what.count, *route.what.dtype}, copy, call.counts);
  } catch (...) {  // the GPU's memory cannot be read, which the other ranks must learn
    state.reducer->begin_trial(route, {nullptr, 0, *route.what.dtype}, false, call.counts);
  }
}

void end_trial(CommState& state, const Result& result, DType dtype, double library_seconds) noexcept {
  try {
    const HostBuffer copy(result.data, result.count * element_bytes(dtype), true);
    state.reducer->end_trial(library_seconds, {copy.data(), result.count, dtype});
  } catch (...) {
    state.reducer->end_trial(library_seconds, {nullptr, 0, dtype});
  }
}

void tell_lines(CommState& state) noexcept {
  try {
    for (const std::string& line : state.reducer->take_lines()) {
      if (!process().configuration.quiet) {
        tell(line);
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no memory for a line
  }
}

void compress(const Reduce& call, CommState& state, const drop_in::HostReducer::Route& route) {
  const auto begin = std::chrono::steady_clock::now();
  call.counts.empty() ? all_reduce(call, state, route) : reduce_scatter(call, state, route);
  if (route.turn.timed) {
    state.reducer->measured(seconds_since(begin));
  }
  tell_of_compressed(state);
  tell_lines(state);
}

}  // namespace gradwire::mpi_preload
