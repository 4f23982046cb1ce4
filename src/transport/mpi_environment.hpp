// MPI's state in this process.
#pragma once

#include <mpi.h>

#include <string>

namespace gradwire::transport {

/// Whether MPI is initialised and not yet finalised.
[[nodiscard]] bool mpi_is_up() noexcept;
/// Throws Error(invalid_argument), which says what to call, unless MPI is up. `who` is the function that needs it.
void require_mpi(const std::string& who);
/// The granted thread level, MPI_THREAD_SINGLE and up.
[[nodiscard]] int mpi_thread_level();
/// Throws Error(invalid_argument) where no transport can be made for `comm`.
void check_communicator(MPI_Comm comm);
/// Ignores SIGPIPE. Open MPI's TCP writes to the sockets of dead peers, so a survivor would otherwise die silently of
/// SIGPIPE before it can say which rank it misses. A handler that the user has set stays.
void ignore_broken_pipes() noexcept;

}  // namespace gradwire::transport
