// Plays a job that a signal ends, and one with handlers of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/mpi_preload/plain_job.hpp"

namespace job {
namespace {

volatile std::sig_atomic_t g_noted = 0;
void note(int) { g_noted = 1; }

void (*disposition(int signal))(int) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

}  // namespace

// Rank 0 waits in a sum that the others do not join, and gets JOB_SIGNAL there; if JOB_TO is set, mpirun gets it, and
// the report is long.
void ended() {
  const std::vector<float> mine(20000, 1.0F);
  std::vector<float> sum(mine.size());
  for (int i = 0; i < 20; ++i) {
    MPI_Allreduce(mine.data(), sum.data(), 20000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  for (int i = 0; i < 5; ++i) {
    MPI_Allreduce(mine.data(), sum.data(), 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  const bool to_mpirun = std::getenv("JOB_TO") != nullptr;
  for (int i = 1; to_mpirun && i < 500; ++i) {
    MPI_Allreduce(mine.data(), sum.data(), 19000 + i, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  long process = to_mpirun ? ::getppid() : ::getpid();
  MPI_Bcast(&process, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  if (g_rank == 0) {
    MPI_Allreduce(mine.data(), sum.data(), 20000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (g_rank == 1) {
    ::usleep(300'000);
    ::kill(static_cast<pid_t>(process), std::atoi(std::getenv("JOB_SIGNAL")));
  }
  ::sleep(60);
}

// This job is started with SIGINT ignored.
void own_handlers() {
  JOB_CHECK(disposition(SIGINT) == SIG_IGN);
  const pid_t child = ::fork();
  if (child == 0) {
    ::sleep(20);
    ::_exit(0);
  }
  ::usleep(100'000);
  int status = 0;
  ::kill(child, SIGTERM);
  JOB_CHECK(::waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);

  std::signal(SIGTERM, note);
  JOB_CHECK(disposition(SIGTERM) == note);
  const std::vector<float> mine(20000, 1.0F);
  std::vector<float> sum(mine.size());
  MPI_Allreduce(mine.data(), sum.data(), 20000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  std::raise(SIGTERM);
  JOB_CHECK(g_noted == 1);
  std::atexit([] {  // after MPI_Finalize
    if (disposition(SIGXCPU) != SIG_DFL || disposition(SIGTERM) != note) {
      std::puts("signals are not as they were");
      std::fflush(stdout);
      ::_exit(3);
    }
  });
}

}  // namespace job
