// Does the same over MPI: rank r contributes r + 1.
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool good = false;
  {
    auto communicator = gradwire::mpi::make_communicator(MPI_COMM_WORLD);
    std::vector<float> gradient(100000, static_cast<float>(communicator.rank() + 1));
    communicator.all_reduce(gradwire::view(gradient.data(), gradient.size()));
    const int world = communicator.world_size();
    good = std::abs(gradient[99999] - static_cast<float>(world * (world + 1)) / 2.0F) < 0.05F;
    std::printf("rank %d of %d: %.3f: %s\n", communicator.rank(), world, static_cast<double>(gradient[99999]),
                good ? "good" : "WRONG");
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
