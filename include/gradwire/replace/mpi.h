/* Include this instead of <mpi.h>, and link gradwire::mpi_replace: large sums of floats are then compressed, every other
   call is the library's own (docs/drop-in.md). C and C++. Only calls compiled with this header are handled. */
#ifndef GRADWIRE_REPLACE_MPI_H
#define GRADWIRE_REPLACE_MPI_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

int gradwire_MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int gradwire_MPI_Reduce_scatter(const void* send, void* receive, const int counts[], MPI_Datatype type, MPI_Op op,
                                MPI_Comm comm);
int gradwire_MPI_Reduce_scatter_block(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                      MPI_Comm comm);
int gradwire_MPI_Iallreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                            MPI_Request* request);
int gradwire_MPI_Ireduce_scatter(const void* send, void* receive, const int counts[], MPI_Datatype type, MPI_Op op,
                                 MPI_Comm comm, MPI_Request* request);
int gradwire_MPI_Ireduce_scatter_block(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                       MPI_Comm comm, MPI_Request* request);
int gradwire_MPI_Finalize(void);
#if MPI_VERSION >= 4
int gradwire_MPI_Allreduce_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm);
int gradwire_MPI_Reduce_scatter_c(const void* send, void* receive, const MPI_Count counts[], MPI_Datatype type,
                                  MPI_Op op, MPI_Comm comm);
int gradwire_MPI_Reduce_scatter_block_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                                        MPI_Comm comm);
#endif

/* Gives a buffer a name that rules of the policy and the report use; a null name takes it away. Optional. Jobs that only
   preload gradwire declare it weak and call it if it is there. The text is copied. */
void gradwire_name(const void* buffer, const char* name);

#ifdef __cplusplus
}
#endif

#define MPI_Allreduce gradwire_MPI_Allreduce
#define MPI_Reduce_scatter gradwire_MPI_Reduce_scatter
#define MPI_Reduce_scatter_block gradwire_MPI_Reduce_scatter_block
#define MPI_Iallreduce gradwire_MPI_Iallreduce
#define MPI_Ireduce_scatter gradwire_MPI_Ireduce_scatter
#define MPI_Ireduce_scatter_block gradwire_MPI_Ireduce_scatter_block
#define MPI_Finalize gradwire_MPI_Finalize
#if MPI_VERSION >= 4
#define MPI_Allreduce_c gradwire_MPI_Allreduce_c
#define MPI_Reduce_scatter_c gradwire_MPI_Reduce_scatter_c
#define MPI_Reduce_scatter_block_c gradwire_MPI_Reduce_scatter_block_c
#endif

#endif
