// How the ranks of one of the job's communicators agree, inside the first call on it that may be compressed, whether
// they can, and under which number and slot: one all-reduce of 64 bytes on the job's own communicator, posted by the
// job's own thread. MPI matches it as it matches the job's calls, so threads and communicators cannot be confused.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/mpi_tags.hpp"
#include "transport/mpi_world.hpp"

namespace gradwire::mpi_preload {

/// Why a rank cannot compress on a communicator: bits of Terms::able that it clears.
enum class Refusal : std::uint8_t { memory, thread };

/// The terms of one rank; the bitwise AND of all ranks' terms holds for all.
struct Terms {
  std::uint64_t number = ~std::uint64_t{0};  // from rank 0 of the communicator; all ones elsewhere
  std::uint32_t able = ~std::uint32_t{0};
  std::uint32_t order = ~std::uint32_t{0};  // number among communicators of the same ranks, from rank 0, too
  transport::SlotTable::Set slots{};

  void refuse(Refusal why) noexcept { able &= ~(std::uint32_t{1} << static_cast<unsigned>(why)); }
  [[nodiscard]] bool refused(Refusal why) const noexcept { return (able >> static_cast<unsigned>(why) & 1U) == 0; }
};
static_assert(sizeof(Terms) == 64, "it travels as 8 words");

/// The waiting call and its ranks, for lines about missing ranks.
struct Waiting {
  std::string call;        // "MPI_Allreduce of 65536 elements"
  std::vector<int> ranks;  // of the communicator, as ranks of MPI_COMM_WORLD
};

/// Collective on `comm`: sets `all` to the terms that hold for all. Waits as long as the library's own call would, and
/// logs after a while for which ranks. If the result is not MPI_SUCCESS, the library's own calls on `comm` fail, too.
[[nodiscard]] int agree_on_terms(MPI_Comm comm, const Terms& mine, const Waiting& waiting, Terms& all);

}  // namespace gradwire::mpi_preload
