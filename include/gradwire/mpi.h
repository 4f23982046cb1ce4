/* gradwire for C over MPI. Both functions are collective over `comm`, work on a private duplicate of it, and need MPI
 * initialised; MPI_THREAD_MULTIPLE lets a session communicate in the background. */
#ifndef GRADWIRE_MPI_H
#define GRADWIRE_MPI_H

#include <mpi.h>

#include "gradwire/gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `policy` NULL: int8, small tensors bf16; it is copied. `options` NULL: defaults. */
GRADWIRE_API gradwire_status gradwire_session_create_mpi(MPI_Comm comm, const gradwire_policy* policy,
                                                         const gradwire_session_options* options,
                                                         gradwire_session** session);
GRADWIRE_API gradwire_status gradwire_communicator_create_mpi(MPI_Comm comm,
                                                              const gradwire_communicator_options* options,
                                                              gradwire_communicator** communicator);

#ifdef __cplusplus
}
#endif

#endif
