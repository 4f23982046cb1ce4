/* Two ranks spawn two more; each world, whose ranks begin at 0, makes four sums. */
#include <mpi.h>
#include <stdio.h>

enum { kCount = 20000 };
static float values[kCount], sum[kCount];

int main(int argc, char** argv) {
  MPI_Comm parent, children;
  int errors[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&parent);
  for (int call = 0; call < 4; ++call) {
    MPI_Allreduce(values, sum, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  if (parent == MPI_COMM_NULL) {
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, errors);
    MPI_Comm_disconnect(&children);
    puts("spawn ok");
  } else {
    MPI_Comm_disconnect(&parent);
  }
  MPI_Finalize();
  return 0;
}
