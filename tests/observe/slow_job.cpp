// A job for slow_rank_test: `slow_job STEPS [CAUSE]`. A step computes for 10 ms and reduces 400,000 gradients by int8.
// `late`: rank 1 computes 20 ms longer; `link`: all links are emulated, and that of rank 1 has a fifth of the rate;
// `tiny`: nothing is computed, and there are few gradients. Each rank prints its process, and at the end the time of
// the comparisons of ranks.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/emulation.hpp"
#include "gradwire/mpi.hpp"
#include "gradwire/session.hpp"

namespace {

constexpr double kCompute = 10e-3;  // seconds of CPU time per step
constexpr double kLate = 20e-3;
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

std::unique_ptr<gradwire::Session> make_session(int rank, const std::string& cause) {
  if (cause == "link") {
    const char* rate = rank == kSlow ? "100Mbit/s" : "500Mbit/s";
    return std::make_unique<gradwire::Session>(
        gradwire::make_emulated(gradwire::mpi::make_transport(MPI_COMM_WORLD), rate),
        gradwire::Policy::uniform("int8"));
  }
  return std::make_unique<gradwire::Session>(
      gradwire::mpi::make_session(MPI_COMM_WORLD, gradwire::Policy::uniform(cause == "tiny" ? "exact" : "int8"), {}));
}

int run(int rank, int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 0;
  const std::string cause = argc > 2 ? argv[2] : "healthy";
  const double computes = cause == "tiny" ? 0 : kCompute + (cause == "late" && rank == kSlow ? kLate : 0);
  std::vector<float> values(cause == "tiny" ? 100 : 400'000, 1.0F);
  const auto session = make_session(rank, cause);
  const gradwire::TensorId id = session->add("values", gradwire::view(values.data(), values.size()));
  std::printf("process of rank %d: %d\n", rank, static_cast<int>(getpid()));
  std::fflush(stdout);
  const double began = MPI_Wtime();
  for (int step = 0; step < steps; ++step) {
    compute(computes);
    session->ready(id);
    session->finish();
  }
  const double seconds = MPI_Wtime() - began;
  const gradwire::SessionStatistics statistics = session->statistics();
  std::printf("rank %d compared %d times in %.3f s: %.4f%% of it\n", rank, static_cast<int>(statistics.comparisons),
              seconds, 100 * statistics.comparison_seconds / seconds);
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
