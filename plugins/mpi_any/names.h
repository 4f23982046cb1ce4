// GRADWIRE_NAMES(X): X(function, number of its arguments) for all functions that the drop-ins for MPI replace. Each
// argument is a pointer or an integer. `any_mpi_test` compares the list with the exports of the drop-ins.
#pragma once

// Open MPI's Fortran bindings, by the spellings of compilers.
#define GRADWIRE_FORTRAN_NAME(X, lower, upper, arguments) \
  X(ompi_##lower##_f, arguments)                          \
  X(mpi_##lower, arguments)                               \
  X(mpi_##lower##_, arguments)                            \
  X(mpi_##lower##__, arguments)                           \
  X(MPI_##upper, arguments)

#define GRADWIRE_NAMES(X)                                                   \
  X(gradwire_name, 2)                                                       \
  X(MPI_Init, 2)                                                            \
  X(MPI_Init_thread, 4)                                                     \
  X(MPI_Finalize, 0)                                                        \
  X(MPI_Comm_free, 1)                                                       \
  X(MPI_Comm_disconnect, 1)                                                 \
  X(MPIX_Comm_revoke, 1)                                                    \
  X(MPIX_Comm_shrink, 2)                                                    \
  X(MPI_Allreduce, 6)                                                       \
  X(MPI_Allreduce_c, 6)                                                     \
  X(MPI_Reduce, 7)                                                          \
  X(MPI_Reduce_c, 7)                                                        \
  X(MPI_Reduce_scatter, 6)                                                  \
  X(MPI_Reduce_scatter_c, 6)                                                \
  X(MPI_Reduce_scatter_block, 6)                                            \
  X(MPI_Reduce_scatter_block_c, 6)                                          \
  X(MPI_Iallreduce, 7)                                                      \
  X(MPI_Iallreduce_c, 7)                                                    \
  X(MPI_Ireduce_scatter, 7)                                                 \
  X(MPI_Ireduce_scatter_c, 7)                                               \
  X(MPI_Ireduce_scatter_block, 7)                                           \
  X(MPI_Ireduce_scatter_block_c, 7)                                         \
  X(MPI_Wait, 2)                                                            \
  X(MPI_Waitall, 3)                                                         \
  X(MPI_Waitany, 4)                                                         \
  X(MPI_Waitsome, 5)                                                        \
  X(MPI_Allreduce_init, 8)                                                  \
  X(MPI_Allreduce_init_c, 8)                                                \
  X(MPI_Reduce_scatter_init, 8)                                             \
  X(MPI_Reduce_scatter_init_c, 8)                                           \
  X(MPI_Reduce_scatter_block_init, 8)                                       \
  X(MPI_Reduce_scatter_block_init_c, 8)                                     \
  GRADWIRE_FORTRAN_NAME(X, allreduce, ALLREDUCE, 7)                         \
  GRADWIRE_FORTRAN_NAME(X, reduce, REDUCE, 8)                               \
  GRADWIRE_FORTRAN_NAME(X, reduce_scatter, REDUCE_SCATTER, 7)               \
  GRADWIRE_FORTRAN_NAME(X, reduce_scatter_block, REDUCE_SCATTER_BLOCK, 7)   \
  GRADWIRE_FORTRAN_NAME(X, iallreduce, IALLREDUCE, 8)                       \
  GRADWIRE_FORTRAN_NAME(X, ireduce_scatter, IREDUCE_SCATTER, 8)             \
  GRADWIRE_FORTRAN_NAME(X, ireduce_scatter_block, IREDUCE_SCATTER_BLOCK, 8) \
  GRADWIRE_FORTRAN_NAME(X, comm_free, COMM_FREE, 2)                         \
  GRADWIRE_FORTRAN_NAME(X, comm_disconnect, COMM_DISCONNECT, 2)             \
  GRADWIRE_FORTRAN_NAME(X, init, INIT, 1)                                   \
  GRADWIRE_FORTRAN_NAME(X, init_thread, INIT_THREAD, 3)                     \
  GRADWIRE_FORTRAN_NAME(X, finalize, FINALIZE, 1)
