/* What C99 does for the tests of the C API. */
#ifndef GRADWIRE_TESTS_C_SIDE_H
#define GRADWIRE_TESTS_C_SIDE_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A policy, a session with two tensors, two steps, a communicator: everything as a C program does it. Returns 0, or the
 * line of the call that failed. `ratio` receives what the session saved. */
int c_side_round_trip(MPI_Comm comm, double* ratio);

/* The same of a reduce-scatter and an all-gather, for up to 8 ranks. */
int c_side_segments(MPI_Comm comm);

/* A session whose parameters are synchronised every second step, tickets, an explanation. */
int c_side_local_steps(MPI_Comm comm);

/* A table that is trained, looked at and saved below `directory`. */
int c_side_table(MPI_Comm comm, const char* directory);

/* A table of a session, trained, saved below `directory`, and loaded by another session. */
int c_side_session_table(MPI_Comm comm, const char* directory);

#ifdef __cplusplus
}
#endif

#endif
