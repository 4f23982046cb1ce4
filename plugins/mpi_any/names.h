// GRADWIRE_NAME(function, number of its arguments): what the drop-ins for MPI take over. Each argument is a pointer or
// an integer. `any_mpi_test` compares the list with what the drop-ins export.
GRADWIRE_NAME(gradwire_name, 2)
GRADWIRE_NAME(MPI_Init, 2)
GRADWIRE_NAME(MPI_Init_thread, 4)
GRADWIRE_NAME(MPI_Finalize, 0)
GRADWIRE_NAME(MPI_Comm_free, 1)
GRADWIRE_NAME(MPI_Comm_disconnect, 1)
GRADWIRE_NAME(MPI_Allreduce, 6)
GRADWIRE_NAME(MPI_Allreduce_c, 6)
GRADWIRE_NAME(MPI_Reduce, 7)
GRADWIRE_NAME(MPI_Reduce_c, 7)
GRADWIRE_NAME(MPI_Reduce_scatter, 6)
GRADWIRE_NAME(MPI_Reduce_scatter_c, 6)
GRADWIRE_NAME(MPI_Reduce_scatter_block, 6)
GRADWIRE_NAME(MPI_Reduce_scatter_block_c, 6)
GRADWIRE_NAME(MPI_Iallreduce, 7)
GRADWIRE_NAME(MPI_Iallreduce_c, 7)
GRADWIRE_NAME(MPI_Ireduce_scatter, 7)
GRADWIRE_NAME(MPI_Ireduce_scatter_c, 7)
GRADWIRE_NAME(MPI_Ireduce_scatter_block, 7)
GRADWIRE_NAME(MPI_Ireduce_scatter_block_c, 7)
GRADWIRE_NAME(MPI_Waitall, 3)
GRADWIRE_NAME(MPI_Allreduce_init, 8)
GRADWIRE_NAME(MPI_Allreduce_init_c, 8)
GRADWIRE_NAME(MPI_Reduce_scatter_init, 8)
GRADWIRE_NAME(MPI_Reduce_scatter_init_c, 8)
GRADWIRE_NAME(MPI_Reduce_scatter_block_init, 8)
GRADWIRE_NAME(MPI_Reduce_scatter_block_init_c, 8)
// Open MPI's Fortran bindings, by the spellings of compilers.
#define GRADWIRE_FORTRAN(lower, upper, arguments) \
  GRADWIRE_NAME(ompi_##lower##_f, arguments)      \
  GRADWIRE_NAME(mpi_##lower, arguments)           \
  GRADWIRE_NAME(mpi_##lower##_, arguments)        \
  GRADWIRE_NAME(mpi_##lower##__, arguments)       \
  GRADWIRE_NAME(MPI_##upper, arguments)
GRADWIRE_FORTRAN(allreduce, ALLREDUCE, 7)
GRADWIRE_FORTRAN(reduce, REDUCE, 8)
GRADWIRE_FORTRAN(reduce_scatter, REDUCE_SCATTER, 7)
GRADWIRE_FORTRAN(reduce_scatter_block, REDUCE_SCATTER_BLOCK, 7)
GRADWIRE_FORTRAN(iallreduce, IALLREDUCE, 8)
GRADWIRE_FORTRAN(ireduce_scatter, IREDUCE_SCATTER, 8)
GRADWIRE_FORTRAN(ireduce_scatter_block, IREDUCE_SCATTER_BLOCK, 8)
GRADWIRE_FORTRAN(comm_free, COMM_FREE, 2)
GRADWIRE_FORTRAN(comm_disconnect, COMM_DISCONNECT, 2)
GRADWIRE_FORTRAN(init, INIT, 1)
GRADWIRE_FORTRAN(init_thread, INIT_THREAD, 3)
GRADWIRE_FORTRAN(finalize, FINALIZE, 1)
#undef GRADWIRE_FORTRAN
