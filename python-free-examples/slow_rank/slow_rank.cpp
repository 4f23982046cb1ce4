// A job in which one rank computes longer than the others, to see how that is reported. Each step has 4 MiB of
// gradients; computing is a sleep, so that the effect also shows on a machine with few cores.
//
//   GRADWIRE_REPORT=report mpirun -np 4 slow_rank [RANK [MILLISECONDS [STEPS]]]; gradwire report report
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

constexpr int kLayers = 8;
constexpr std::size_t kElements = 131072;  // of a layer
constexpr std::chrono::milliseconds kCompute{16};

void train(int slow_rank, std::chrono::milliseconds longer, int steps) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto session = gradwire::mpi::make_session(MPI_COMM_WORLD, gradwire::Policy{});
  std::vector<std::vector<float>> gradients(kLayers, std::vector<float>(kElements));
  std::vector<gradwire::TensorId> ids;
  for (int i = 0; i < kLayers; ++i) {
    auto& gradient = gradients[static_cast<std::size_t>(i)];
    ids.push_back(session.add("layer" + std::to_string(i), gradwire::view(gradient.data(), gradient.size())));
  }
  for (int step = 0; step < steps; ++step) {
    std::this_thread::sleep_for(rank == slow_rank ? kCompute + longer : kCompute);
    for (int i = kLayers - 1; i >= 0; --i) {  // in the order of a backward pass
      auto& gradient = gradients[static_cast<std::size_t>(i)];
      for (std::size_t k = 0; k < kElements; ++k) {
        gradient[k] = 1e-3F * float((k * 2654435761U + std::size_t(step) * 40503U + std::size_t(rank)) % 2001) - 1;
      }
      session.ready(ids[static_cast<std::size_t>(i)]);
    }
    session.finish();
  }
  if (rank == 0) {
    std::printf("%s", session.statistics().to_text().c_str());
  }
}

int main(int argc, char** argv) {
  int thread_level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  train(argc > 1 ? std::atoi(argv[1]) : 2, std::chrono::milliseconds(argc > 2 ? std::atoi(argv[2]) : 30),
        argc > 3 ? std::atoi(argv[3]) : 100);
  MPI_Finalize();
}
