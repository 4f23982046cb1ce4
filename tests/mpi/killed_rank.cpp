// Reduces until a rank is gone: `killed_rank VICTIM [session]`. The victim kills itself with SIGKILL after some rounds;
// every survivor must get an Error that names it within the timeout, print it, and exit with status 7.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gradwire/mpi.hpp"

namespace {

constexpr std::chrono::seconds kTimeout{5};
constexpr int kRounds = 1000000;

template <typename Round>
void run(int rank, int victim, Round&& round) {
  for (int i = 0; i < kRounds; ++i) {
    if (rank == victim && i == 5) {
      std::raise(SIGKILL);
    }
    round();
  }
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  int rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int victim = argc > 1 ? std::atoi(argv[1]) : 1;
  const bool use_session = argc > 2 && std::strcmp(argv[2], "session") == 0;
  std::vector<float> values(2000000, 1.0F);
  const gradwire::View gradient = gradwire::view(values.data(), values.size());
  try {
    if (use_session) {
      auto session = gradwire::mpi::make_session(MPI_COMM_WORLD, {}, {.timeout = kTimeout});
      const auto id = session.add("weight", gradient);
      run(rank, victim, [&] {
        session.ready(id);
        session.finish();
      });
    } else {
      auto communicator = gradwire::mpi::make_communicator(MPI_COMM_WORLD, {.timeout = kTimeout});
      run(rank, victim, [&] { communicator.all_reduce(gradient); });
    }
  } catch (const gradwire::Error& error) {
    std::printf("survivor %d: %s: %s\n", rank, std::string(to_string(error.code())).c_str(), error.what());
    std::fflush(stdout);
    _exit(7);  // MPI_Finalize would wait for the dead rank
  }
  return 0;
}
