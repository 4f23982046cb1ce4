/* Uses the replacement header from C: every renamed function, and a name. */
#include <gradwire/replace/mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCount = 40000 };

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0, wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  float* values = malloc((size_t)size * kCount * sizeof(float));
  float* part = malloc(kCount * sizeof(float));
  int* counts = malloc((size_t)size * sizeof(int));
  MPI_Request request = MPI_REQUEST_NULL;
  for (int i = 0; i < size * kCount; ++i) {
    values[i] = (float)(i % 7 - 3);
  }
  for (int r = 0; r < size; ++r) {
    counts[r] = kCount;
  }
  gradwire_name(values, "layer.weight");
  for (int step = 0; step < 20; ++step) {
    MPI_Reduce_scatter(values, part, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce_scatter_block(values, part, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(values, part, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < kCount; ++i) {
      const float error = part[i] - (float)size * values[i];
      wrong += error > 0.05F * (float)size || error < -0.05F * (float)size;
    }
  }
  MPI_Iallreduce(values, part, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Ireduce_scatter(values, part, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Ireduce_scatter_block(values, part, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  /* A function pointer is renamed too. */
  int (*reduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm) = MPI_Allreduce;
  reduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && wrong == 0) {
    puts("caller ok");
  }
  gradwire_name(values, NULL);
  free(counts);
  free(part);
  free(values);
  MPI_Finalize();
  return wrong != 0;
}
