/* Sums a vector with the header that replaces mpi.h: with GRADWIRE_CODEC the sum is near the exact one, but not equal. */
#include <gradwire/replace/mpi.h>
#include <math.h>
#include <stdio.h>

enum { kCount = 100000 };
static float gradient[kCount];

int main(int argc, char** argv) {
  int rank = 0;
  int ranks = 0;
  double error = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 0; i < kCount; ++i) {
    gradient[i] = (float)sin(i);
  }
  MPI_Allreduce(MPI_IN_PLACE, gradient, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < kCount; ++i) {
    error = fmax(error, fabs(gradient[i] - ranks * (float)sin(i)));
  }
  const int good = error > 1e-5 && error < 0.1;
  printf("rank %d of %d: largest error %.2g: %s\n", rank, ranks, error, good ? "compressed" : "WRONG");
  MPI_Finalize();
  return good ? 0 : 1;
}
