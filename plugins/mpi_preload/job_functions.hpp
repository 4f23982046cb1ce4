// Shared code of the files that define the job's MPI functions.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "plugins/mpi_preload/interpose.hpp"
#include "plugins/mpi_preload/next.hpp"
#include "plugins/mpi_preload/recording.hpp"

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

// The sum of the counts, or a negative number where one of them is negative.
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

// The segments of a reduce-scatter, by rank; `counts` are the job's.
template <typename Count>
std::vector<std::uint64_t> segments_of(const Count counts[], std::int64_t total, int size) {
  return {counts, counts + (total < 0 ? 0 : size)};
}
inline std::vector<std::uint64_t> segments_of(std::int64_t each, int size) {
  return std::vector<std::uint64_t>(static_cast<std::size_t>(size), each < 0 ? 0 : static_cast<std::uint64_t>(each));
}

/// The judgement of `way` on a reduce-scatter, whose segments `segments()` makes.
template <typename Segments, typename Way>
Verdict judge_segments(Reduce call, const Segments& segments, const Way& way) noexcept {
  try {
    const std::vector<std::uint64_t> counts = segments();
    call.counts = counts;
    return way.judge(call);
  } catch (...) {
    return {};
  }
}

// Makes the job's reductions from either language. `way` says whether they return a request. `buffers()` gives the
// buffers with C's sentinels, and is called only where the call may be compressed; `forward()` makes the unchanged
// call, and returns its code.

struct Buffers {
  const void* send;
  void* receive;
};

// The buffers of a call from C.
inline auto c_buffers(const void* send, void* receive) noexcept {
  return [=] { return Buffers{send, receive}; };
}

struct Blocking {
  static constexpr auto kAllReduce = choice::Function::mpi_allreduce;
  static constexpr auto kReduceScatter = choice::Function::mpi_reduce_scatter;
  static constexpr auto kReduceScatterBlock = choice::Function::mpi_reduce_scatter_block;

  [[nodiscard]] static bool passes(choice::Function function, std::int64_t count, MPI_Datatype type, MPI_Op op,
                                   MPI_Comm comm) noexcept {
    return passes_at_once(function, count, type, op, comm);
  }
  [[nodiscard]] static Verdict judge(const Reduce& call) noexcept { return mpi_preload::judge(call); }
};

struct Requesting {
  static constexpr auto kAllReduce = choice::Function::mpi_iallreduce;
  static constexpr auto kReduceScatter = choice::Function::mpi_ireduce_scatter;
  static constexpr auto kReduceScatterBlock = choice::Function::mpi_ireduce_scatter_block;

  MPI_Request* request;  // set where gradwire makes it

  [[nodiscard]] static bool passes(choice::Function function, std::int64_t count, MPI_Datatype type, MPI_Op op,
                                   MPI_Comm comm) noexcept {
    return request_passes_at_once(function, count, type, op, comm);
  }
  [[nodiscard]] Verdict judge(const Reduce& call) const noexcept { return judge_request(call, request); }
};

// `judge(call)` says what to do. A call that passes at once needs no Reduce, since most calls are small.
template <typename Way, typename Find, typename Judge, typename Forward>
int make(const Way way, choice::Function function, const Find& buffers, std::int64_t count, MPI_Datatype type,
         MPI_Op op, MPI_Comm comm, const Judge& judge, const Forward& forward) {
  if (records() && !of_session(comm)) {
    const Buffers recorded = buffers();
    record_call(function, recorded.send, recorded.receive, count, type, op);
  }
  if (way.passes(function, count, type, op, comm)) {
    return forward();
  }
  const Buffers given = buffers();
  return conclude(comm, judge({function, given.send, given.receive, count, {}, type, op, comm}), forward);
}

template <typename Way, typename Find, typename Forward>
int all_reduce(const Way way, const Find& buffers, std::int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
               const Forward& forward) {
  const auto judge = [=](const Reduce& call) { return way.judge(call); };
  return make(way, Way::kAllReduce, buffers, count, type, op, comm, judge, forward);
}

template <typename Find, typename Forward>
int reduce(const Find& buffers, std::int64_t count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
           const Forward& forward) {
  const auto judge = [=](Reduce call) {
    call.root = root;
    return Blocking::judge(call);
  };
  return make(Blocking{}, choice::Function::mpi_reduce, buffers, count, type, op, comm, judge, forward);
}

template <typename Way, typename Find, typename Count, typename Forward>
int reduce_scatter(const Way way, const Find& buffers, const Count counts[], MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, const Forward& forward) {
  const int size = counts == nullptr ? 0 : size_of(comm);
  const std::int64_t total = counts == nullptr ? -1 : sum_of(counts, size);
  const auto judge = [=](const Reduce& call) {
    return judge_segments(
        call, [=] { return segments_of(counts, total, size); }, way);
  };
  return make(way, Way::kReduceScatter, buffers, total, type, op, comm, judge, forward);
}

template <typename Way, typename Find, typename Forward>
int reduce_scatter_block(const Way way, const Find& buffers, std::int64_t count, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm, const Forward& forward) {
  const int size = size_of(comm);
  const auto judge = [=](const Reduce& call) {
    return judge_segments(
        call, [=] { return segments_of(count, size); }, way);
  };
  return make(way, Way::kReduceScatterBlock, buffers, count * size, type, op, comm, judge, forward);
}

/// To be called in MPI_Init after the library's own, for each language and thread level.
void begin() noexcept;

}  // namespace gradwire::mpi_preload
