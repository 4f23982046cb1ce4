// What transports leave behind that ended by an abort. Their communicators cannot be freed then: ranks may be gone, and
// messages may still be on their way, which no receive of a communicator in the place of this one may match. When the
// same ranks make a transport again, all of them are there: they read what is left, and free what is empty.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gradwire::transport {

struct MpiRemains {
  std::uint32_t serial = 0;  // of the transport: the same on all its ranks
  MPI_Comm messages = MPI_COMM_NULL;
  MPI_Comm notices = MPI_COMM_NULL;
};

/// Tags of the messages that say "nothing comes behind this". Collectives and notices have none of them.
inline constexpr int kLastMessageTag = 1 << 29;
inline constexpr int kLastNoticeTag = 1;

/// Keeps communicators until they can be freed. Any thread.
void leave_behind(const MpiRemains& remains);
/// How many are kept.
[[nodiscard]] std::size_t left_behind();

/// Returns when every rank of `comm` is here, with a serial number for a transport of theirs; Error(timeout) names the
/// absent. Then frees what the same ranks have left behind. Collective.
[[nodiscard]] std::uint32_t begin_transport(MPI_Comm comm, std::chrono::milliseconds timeout);

}  // namespace gradwire::transport
