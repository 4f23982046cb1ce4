// What jobs do that MPI does not ask for, and what must not grow with their number.
#include <numeric>
#include <string>

#include "tests/mpi_preload/job.hpp"

namespace job {

// Small calls on more communicators in turn than a thread remembers; none on MPI_COMM_WORLD itself.
void alternating() {
  std::vector<MPI_Comm> comms(8, MPI_COMM_NULL);
  for (MPI_Comm& comm : comms) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  }
  for (int round = 0; round < 50; ++round) {
    for (const MPI_Comm comm : comms) {
      int one = 1;
      MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, comm);
      JOB_CHECK(one == g_size);
    }
  }
  for (MPI_Comm& comm : comms) {
    MPI_Comm_free(&comm);
  }
}

}  // namespace job
