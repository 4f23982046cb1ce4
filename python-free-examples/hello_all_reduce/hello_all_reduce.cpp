// One all-reduce of a vector with int8 on the wire. Prints the sum, its error, and the bytes sent.
//
//   mpirun -np 4 hello_all_reduce
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

int main(int argc, char** argv) {
  int thread_level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  {
    auto communicator = gradwire::mpi::make_communicator(MPI_COMM_WORLD);
    std::vector<float> values(1 << 20);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(float(i)) * float(communicator.rank() + 1);
    }

    const auto statistics = communicator.all_reduce(gradwire::view(values.data(), values.size()));

    const int world = communicator.world_size();
    const float factor = 0.5F * float(world) * float(world + 1);
    float worst = 0;  // difference from the exact sum, sin(i) (1 + 2 + ... + world)
    for (std::size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(values[i] - std::sin(float(i)) * factor));
    }
    if (communicator.rank() == 0) {
      std::printf("sum of %zu values over %d ranks, int8: values[1] = %.4f, largest error %.4f of %.0f\n",
                  values.size(), world, values[1], worst, double(factor));
      std::printf("sent %.2f MB instead of %.2f MB per rank: ratio %.2f\n", double(statistics.bytes_sent) / 1e6,
                  double(statistics.bytes_uncompressed) / 1e6, statistics.ratio());
    }
  }
  MPI_Finalize();
}
