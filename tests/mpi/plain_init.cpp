// A job that calls plain MPI_Init, makes two sessions and has NaN in its gradients. plain_init_test reads its log.
#include <mpi.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "gradwire/mpi.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  for (int made = 0; made < 2; ++made) {
    std::vector<float> gradient(5000, 1);
    auto session = gradwire::mpi::make_session(MPI_COMM_WORLD, gradwire::Policy());
    const auto id = session.add("w", gradwire::view(gradient.data(), gradient.size()));
    for (int step = 0; step < 4; ++step) {
      gradient[7] = made == 0 && step >= 1 ? NAN : 1;
      session.ready(id);
      if (session.finish().nonfinite != (made == 0 && step >= 1)) {
        return EXIT_FAILURE;
      }
    }
  }
  MPI_Finalize();
  return EXIT_SUCCESS;
}
