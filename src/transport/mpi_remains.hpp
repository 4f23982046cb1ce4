// Communicators of transports that ended by an abort. They cannot be freed then: ranks may be gone, and messages may
// still be on their way, which no receive of a later communicator with the same id may match. When the same ranks make
// a transport again, all of them are there: they read the remaining messages, and free the communicators that are
// empty.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gradwire::transport {

struct MpiRemains {
  std::uint32_t serial = 0;  // number of the transport, the same on all its ranks
  MPI_Comm messages = MPI_COMM_NULL;
  MPI_Comm notices = MPI_COMM_NULL;
};

/// The tags of last messages, which nothing follows. Collectives and notices do not use them.
inline constexpr int kLastMessageTag = 1 << 29;
inline constexpr int kLastNoticeTag = 1;

/// Keeps communicators until they can be freed. Any thread may call this.
void leave_behind(const MpiRemains& remains);
/// The number of communicators that are kept.
[[nodiscard]] std::size_t kept_communicators();

/// Waits until every rank of `comm` is here, then frees what the same ranks have left behind. Returns a serial number
/// for their next transport; Error(timeout) names the absent ranks. Collective.
[[nodiscard]] std::uint32_t begin_transport(MPI_Comm comm, std::chrono::milliseconds timeout);

}  // namespace gradwire::transport
