// What the files that define the job's MPI functions share.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "plugins/mpi_preload/interpose.hpp"
#include "plugins/mpi_preload/next.hpp"

#define GRADWIRE_EXPORT extern "C" __attribute__((visibility("default")))
// The same function under the name of the replacement header.
#define GRADWIRE_ALSO(name) __typeof__(name) gradwire_##name __attribute__((alias(#name), visibility("default")))

namespace gradwire::mpi_preload {

// The ranks of a communicator; 0 where that is not known, and then nothing but its error will come of it.
inline int size_of(MPI_Comm comm) noexcept {
  if (forwards_only()) {
    return 0;
  }
  if (const auto* state = cached_state(comm)) {
    return state->size;
  }
  int size = 0;
  return comm != MPI_COMM_NULL && find_state(comm) != nullptr && PMPI_Comm_size(comm, &size) == MPI_SUCCESS ? size : 0;
}

// The sum, or a negative number where one of them is negative.
template <typename Count>
std::int64_t sum_of(const Count counts[], int size) noexcept {
  std::int64_t sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (counts[rank] < 0) {
      return -1;
    }
    sum += counts[rank];
  }
  return sum;
}

// The segments of a reduce-scatter, by rank; `counts` as the job gave them.
template <typename Count>
std::vector<std::uint64_t> segments_of(const Count counts[], std::int64_t total, int size) {
  return {counts, counts + (total < 0 ? 0 : size)};
}
inline std::vector<std::uint64_t> segments_of(std::int64_t each, int size) {
  return std::vector<std::uint64_t>(static_cast<std::size_t>(size), each < 0 ? 0 : static_cast<std::uint64_t>(each));
}

/// `judge` of a reduce-scatter, whose segments `segments()` makes.
template <typename Segments, typename Judge>
Verdict judge_segments(Reduce call, const Segments& segments, const Judge& judge) noexcept {
  try {
    const std::vector<std::uint64_t> counts = segments();
    call.counts = counts;
    return judge(call);
  } catch (...) {
    return {};
  }
}

// The job's reductions, whichever language they come from. `buffers()` gives the sentinels of C, and is asked only
// where the call may be compressed; `forward()` makes the call as it came, and returns its code.

struct Buffers {
  const void* send;
  void* receive;
};

template <typename Find, typename Forward>
int all_reduce(const Find& buffers, std::int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
               const Forward& forward) {
  constexpr auto kFunction = drop_in::Function::mpi_allreduce;
  if (passes_at_once(kFunction, count, type, op, comm)) {
    return forward();
  }
  const Buffers given = buffers();
  return conclude(comm, judge({kFunction, given.send, given.receive, count, {}, type, op, comm}), forward);
}

template <typename Find, typename Forward>
int reduce(const Find& buffers, std::int64_t count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
           const Forward& forward) {
  constexpr auto kFunction = drop_in::Function::mpi_reduce;
  if (passes_at_once(kFunction, count, type, op, comm)) {
    return forward();
  }
  const Buffers given = buffers();
  return conclude(comm, judge({kFunction, given.send, given.receive, count, {}, type, op, comm, root}), forward);
}

template <typename Find, typename Count, typename Forward>
int reduce_scatter(const Find& buffers, const Count counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   const Forward& forward) {
  constexpr auto kFunction = drop_in::Function::mpi_reduce_scatter;
  const int size = counts == nullptr ? 0 : size_of(comm);
  const std::int64_t total = counts == nullptr ? -1 : sum_of(counts, size);
  if (passes_at_once(kFunction, total, type, op, comm)) {
    return forward();
  }
  const Buffers given = buffers();
  const Reduce call{kFunction, given.send, given.receive, total, {}, type, op, comm};
  return conclude(comm,
                  judge_segments(
                      call, [=] { return segments_of(counts, total, size); }, judge),
                  forward);
}

template <typename Find, typename Forward>
int reduce_scatter_block(const Find& buffers, std::int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                         const Forward& forward) {
  constexpr auto kFunction = drop_in::Function::mpi_reduce_scatter_block;
  const int size = size_of(comm);
  const std::int64_t total = count * size;
  if (passes_at_once(kFunction, total, type, op, comm)) {
    return forward();
  }
  const Buffers given = buffers();
  const Reduce call{kFunction, given.send, given.receive, total, {}, type, op, comm};
  return conclude(comm,
                  judge_segments(
                      call, [=] { return segments_of(count, size); }, judge),
                  forward);
}

// Those that return a request: `*request` is set where gradwire makes it.

template <typename Find, typename Forward>
int all_reduce(const Find& buffers, std::int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
               MPI_Request* request, const Forward& forward) {
  constexpr auto kFunction = drop_in::Function::mpi_iallreduce;
  if (passes_as_small(kFunction, count, type, comm)) {
    return forward();
  }
  const Buffers given = buffers();
  return conclude(comm, judge_request({kFunction, given.send, given.receive, count, {}, type, op, comm}, request),
                  forward);
}

template <typename Find, typename Count, typename Forward>
int reduce_scatter(const Find& buffers, const Count counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request, const Forward& forward) {
  constexpr auto kFunction = drop_in::Function::mpi_ireduce_scatter;
  const int size = counts == nullptr ? 0 : size_of(comm);
  const std::int64_t total = counts == nullptr ? -1 : sum_of(counts, size);
  if (passes_as_small(kFunction, total, type, comm)) {
    return forward();
  }
  const Buffers given = buffers();
  const Reduce call{kFunction, given.send, given.receive, total, {}, type, op, comm};
  return conclude(comm,
                  judge_segments(
                      call, [=] { return segments_of(counts, total, size); },
                      [=](const Reduce& of) { return judge_request(of, request); }),
                  forward);
}

template <typename Find, typename Forward>
int reduce_scatter_block(const Find& buffers, std::int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                         MPI_Request* request, const Forward& forward) {
  constexpr auto kFunction = drop_in::Function::mpi_ireduce_scatter_block;
  const int size = size_of(comm);
  const std::int64_t total = count * size;
  if (passes_as_small(kFunction, total, type, comm)) {
    return forward();
  }
  const Buffers given = buffers();
  const Reduce call{kFunction, given.send, given.receive, total, {}, type, op, comm};
  return conclude(
      comm,
      judge_segments(
          call, [=] { return segments_of(count, size); }, [=](const Reduce& of) { return judge_request(of, request); }),
      forward);
}

/// What MPI_Init does after the library's own, in whichever language and thread level the job calls it.
void begin() noexcept;

}  // namespace gradwire::mpi_preload
