/* The functions that C99 code provides for the tests of the C API. */
#ifndef GRADWIRE_TESTS_C_SIDE_H
#define GRADWIRE_TESTS_C_SIDE_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Uses a policy, a session with two tensors, two steps and a communicator, all as a C program does. Returns 0, or the
 * line of the call that failed. `ratio` receives the compression ratio of the session. */
int c_side_round_trip(MPI_Comm comm, double* ratio);

/* Does the same with a reduce-scatter and an all-gather, for up to 8 ranks. */
int c_side_segments(MPI_Comm comm);

/* Uses a session that synchronises its parameters every second step, tickets, and an explanation. */
int c_side_local_steps(MPI_Comm comm);

/* Trains a table, inspects it, and saves it below `directory`. */
int c_side_table(MPI_Comm comm, const char* directory);

/* Trains a table of a session, saves it below `directory`, and loads it into another session. */
int c_side_session_table(MPI_Comm comm, const char* directory);

#ifdef __cplusplus
}
#endif

#endif
