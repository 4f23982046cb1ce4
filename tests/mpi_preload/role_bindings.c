/* Plays an MPI's Fortran library: MPI_IN_PLACE is the address of a common block, which the module that is linked with
   this library has, too. The loader decides which of the two addresses counts. */
#include <mpi.h>
#include <stddef.h>

int mpi_fortran_in_place_;

/* Open MPI's bindings call the profiling names, MPICH's the others. */
#ifdef OPEN_MPI
#define SUM PMPI_Allreduce
#define INIT PMPI_Init
#define FINALIZE PMPI_Finalize
#else
#define SUM MPI_Allreduce
#define INIT MPI_Init
#define FINALIZE MPI_Finalize
#endif

void mpi_init_(MPI_Fint* error) { *error = INIT(NULL, NULL); }

void mpi_finalize_(MPI_Fint* error) { *error = FINALIZE(); }

void mpi_allreduce_(void* send, void* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
                    MPI_Fint* error) {
  const void* from = send == (void*)&mpi_fortran_in_place_ ? MPI_IN_PLACE : send;
  *error = SUM(from, receive, *count, MPI_Type_f2c(*type), MPI_Op_f2c(*op), MPI_Comm_f2c(*comm));
}
