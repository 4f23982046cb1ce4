/* gradwire for C over MPI. All functions are collective over `comm`, work on a private duplicate of it, and need MPI
 * initialised; MPI_THREAD_MULTIPLE lets sessions and tables communicate in the background. A rank whose options are
 * wrong by themselves returns an error before anything is sent, so the other ranks wait for it. */
#ifndef GRADWIRE_MPI_H
#define GRADWIRE_MPI_H

#include <mpi.h>

#include "gradwire/gradwire.h"
#include "gradwire/tables.h"

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
/* `policy` not NULL: its first rule that matches options->tensor must have sync = { rows = true, ... } and replaces the
 * options staleness, gradient_codec (by its codec) and codec (by its second_hop, or its codec too). Every rank gets
 * GRADWIRE_MISMATCH where options differ, and the reason where one rank cannot make its part. */
GRADWIRE_API gradwire_status gradwire_table_create_mpi(MPI_Comm comm, const gradwire_policy* policy,
                                                       const gradwire_table_options* options, gradwire_table** table);

#ifdef __cplusplus
}
#endif

#endif
