// The functions that a job calls to go on when ranks end (ULFM, of Open MPI 5). After them the drop-in keeps no state
// for the communicator, and no rank waits on its private ones.
#include <mpi.h>

#ifdef OPEN_MPI

#include "base/mutex.hpp"
#include "plugins/mpi_preload/job_functions.hpp"

extern "C" {  // null in Open MPI 4.1
int PMPIX_Comm_revoke(MPI_Comm comm) __attribute__((weak));
int PMPIX_Comm_shrink(MPI_Comm comm, MPI_Comm* shrunk) __attribute__((weak));
}

using namespace gradwire::mpi_preload;  // NOLINT(google-build-using-namespace): only calls of it follow

// The job's own communicator is revoked first: a rank that hears of our revocation asks MPI about the job's.
GRADWIRE_EXPORT int MPIX_Comm_revoke(MPI_Comm comm) {
  if (GRADWIRE_NEXT(MPIX_Comm_revoke) == nullptr) {
    return MPI_ERR_UNSUPPORTED_OPERATION;
  }
  const int code = GRADWIRE_NEXT(MPIX_Comm_revoke)(comm);
  CommState* state = code == MPI_SUCCESS ? known_state(comm) : nullptr;
  if (state != nullptr) {
    state->revoke_private();
  }
  return code;
}

GRADWIRE_EXPORT int MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm* shrunk) {
  if (GRADWIRE_NEXT(MPIX_Comm_shrink) == nullptr) {
    return MPI_ERR_UNSUPPORTED_OPERATION;
  }
  const int code = GRADWIRE_NEXT(MPIX_Comm_shrink)(comm, shrunk);
  CommState* state = code == MPI_SUCCESS ? known_state(comm) : nullptr;
  if (state != nullptr) {
    const gradwire::MutexLock lock(state->mutex);
    state->drop_if_faulty();  // a communicator that has lost no rank stays usable
  }
  return code;
}

extern "C" {
GRADWIRE_ALSO(MPIX_Comm_revoke);
GRADWIRE_ALSO(MPIX_Comm_shrink);
}
#endif
