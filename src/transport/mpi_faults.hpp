// Questions to an MPI that goes on when ranks end (ULFM: Open MPI 5 under `mpirun --with-ft ulfm`). Its functions are
// looked up when the program starts, since one library serves Open MPI 4.1, which lacks them, and 5.
#pragma once

#include <mpi.h>

#include <vector>

namespace gradwire::transport {

/// Whether MPI goes on in this job when a rank ends. To be called between MPI_Init and MPI_Finalize.
[[nodiscard]] bool tolerates_faults() noexcept;
/// Whether `comm` was revoked, as far as this rank was told. The call is quick.
[[nodiscard]] bool is_revoked(MPI_Comm comm) noexcept;
/// Whether no collective call on `comm` can succeed any more: it was revoked, or one of its ranks has ended, as far as
/// this rank was told.
[[nodiscard]] bool is_faulty(MPI_Comm comm) noexcept;
/// The ranks of `comm` that have ended, as far as this rank was told. Receives from any rank work again afterwards.
[[nodiscard]] std::vector<int> acknowledge_ended(MPI_Comm comm);
/// Ends with an error all operations that any rank has under way on `comm`. Not collective; any thread that may call
/// MPI.
void revoke(MPI_Comm comm) noexcept;

}  // namespace gradwire::transport
