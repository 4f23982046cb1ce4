// A job for slow_rank_test: `slow_job STEPS [late SECONDS]`. Steps of 10 ms of computing and 400,000
// gradients by int8; rank 1 computes longer. Each rank says its process.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "gradwire/mpi.hpp"
#include "gradwire/session.hpp"

namespace {

constexpr double kCompute = 10e-3;  // seconds of CPU time a step
constexpr int kSlow = 1;

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

void compute(double seconds) {
  for (const double end = cpu_seconds() + seconds; cpu_seconds() < end;) {
  }
}

int run(int rank, int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 0;
  const bool is_late = argc > 3 && std::string(argv[2]) == "late" && rank == kSlow;
  const double late = is_late ? std::atof(argv[3]) : 0;
  std::vector<float> values(400'000, 1.0F);
  auto session = gradwire::mpi::make_session(MPI_COMM_WORLD, gradwire::Policy::uniform("int8"), {});
  const gradwire::TensorId id = session.add("values", gradwire::view(values.data(), values.size()));
  std::printf("process of rank %d: %d\n", rank, static_cast<int>(getpid()));
  std::fflush(stdout);
  for (int step = 0; step < steps; ++step) {
    compute(kCompute + late);
    session.ready(id);
    session.finish();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  int rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int status = run(rank, argc, argv);
  MPI_Finalize();
  return status;
}
