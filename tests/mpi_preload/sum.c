/* One program of a job with several programs: it makes a sum that int8 would round, and that must not be rounded. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  enum { kCount = 100000 };
  int rank = 0, size = 1, wrong = 0;
  float* values = malloc(kCount * sizeof *values);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int call = 0; call < 3; ++call) {
    for (int i = 0; i < kCount; ++i)
      values[i] = (float)(i % 1000);
    MPI_Allreduce(MPI_IN_PLACE, values, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < kCount; ++i)
      wrong += values[i] != (float)(i % 1000 * size);
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0)
    printf(wrong == 0 ? "sum ok\n" : "sums rounded\n");
  MPI_Finalize();
  free(values);
  return 0;
}
