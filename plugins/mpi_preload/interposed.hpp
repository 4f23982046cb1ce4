// What the files that define the job's MPI functions share.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "plugins/mpi_preload/interpose.hpp"

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

}  // namespace gradwire::mpi_preload
