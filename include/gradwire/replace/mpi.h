/* Include this instead of <mpi.h>, and link gradwire::mpi_replace: large sums of floats are then compressed where
   GRADWIRE_CODEC or GRADWIRE_POLICY says so; without these, and for every other call, MPI's own function is called
   (docs/how-to/drop-in-mpi.md). C and C++. Linking puts gradwire in front of the MPI for the whole program, so calls in
   files compiled with <mpi.h> are handled too; files compiled with this header are handled whatever the order of the
   libraries. */
#ifndef GRADWIRE_REPLACE_MPI_H
#define GRADWIRE_REPLACE_MPI_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

int gradwire_MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int gradwire_MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root,
                        MPI_Comm comm);
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
int gradwire_MPI_Comm_free(MPI_Comm* comm);
int gradwire_MPI_Comm_disconnect(MPI_Comm* comm);
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5 /* its mpi-ext.h declares the originals */
int gradwire_MPIX_Comm_revoke(MPI_Comm comm);
int gradwire_MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm* shrunk);
#endif
int gradwire_MPI_Init(int* argc, char*** argv);
int gradwire_MPI_Init_thread(int* argc, char*** argv, int required, int* granted);
int gradwire_MPI_Finalize(void);
#if MPI_VERSION >= 4
int gradwire_MPI_Allreduce_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm);
int gradwire_MPI_Reduce_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
                          MPI_Comm comm);
int gradwire_MPI_Reduce_scatter_c(const void* send, void* receive, const MPI_Count counts[], MPI_Datatype type,
                                  MPI_Op op, MPI_Comm comm);
int gradwire_MPI_Reduce_scatter_block_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                                        MPI_Comm comm);
#endif

/* Gives a buffer a name that rules of the policy and the report use. A null name removes it: do that before the buffer
   is freed, or the next buffer at its address inherits the name. The 32768 names given or used last are kept. Calling
   this is optional. Jobs that only preload gradwire declare it weak and call it if it is there. The text is copied. */
void gradwire_name(const void* buffer, const char* name);

#ifdef __cplusplus
}
#endif

#define MPI_Allreduce gradwire_MPI_Allreduce
#define MPI_Reduce gradwire_MPI_Reduce
#define MPI_Reduce_scatter gradwire_MPI_Reduce_scatter
#define MPI_Reduce_scatter_block gradwire_MPI_Reduce_scatter_block
#define MPI_Iallreduce gradwire_MPI_Iallreduce
#define MPI_Ireduce_scatter gradwire_MPI_Ireduce_scatter
#define MPI_Ireduce_scatter_block gradwire_MPI_Ireduce_scatter_block
#define MPI_Comm_free gradwire_MPI_Comm_free
#define MPI_Comm_disconnect gradwire_MPI_Comm_disconnect
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
#define MPIX_Comm_revoke gradwire_MPIX_Comm_revoke
#define MPIX_Comm_shrink gradwire_MPIX_Comm_shrink
#endif
#define MPI_Init gradwire_MPI_Init
#define MPI_Init_thread gradwire_MPI_Init_thread
#define MPI_Finalize gradwire_MPI_Finalize
#if MPI_VERSION >= 4
#define MPI_Allreduce_c gradwire_MPI_Allreduce_c
#define MPI_Reduce_c gradwire_MPI_Reduce_c
#define MPI_Reduce_scatter_c gradwire_MPI_Reduce_scatter_c
#define MPI_Reduce_scatter_block_c gradwire_MPI_Reduce_scatter_block_c
#endif

#endif
