#include "plugins/mpi_preload/early_end.hpp"

#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <thread>

#include "plugins/mpi_preload/process.hpp"

namespace gradwire::mpi_preload {
namespace {

constexpr std::array kSignals{SIGTERM, SIGINT, SIGHUP, SIGXCPU};

// Open MPI's mpirun sends SIGTERM to all ranks, and SIGKILL 1 s later, or as soon as one of them has ended. So the
// other ranks wait this long, to end later than rank 0.
constexpr timespec kForTheReport{.tv_sec = 0, .tv_nsec = 800'000'000};

// These are set before a handler is.
sem_t g_alarm;  // wakes rank 0's thread
bool g_reports = false;
pid_t g_owner = 0;

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void end_by(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
}

// The signal handler. On rank 0 it only wakes the thread, which may take locks; the interrupted thread goes on, and
// releases the locks that it holds.
void on_signal(int signal) {
  const int before = errno;
  if (::getpid() != g_owner) {  // a forked child has no such thread
    end_by(signal);
  } else if (!g_reports) {
    ::nanosleep(&kForTheReport, nullptr);
    end_by(signal);
  } else {
    g_signal = signal;
    ::sem_post(&g_alarm);
  }
  errno = before;
}

void wait_for_signals(int world_size) {
  for (;;) {
    if (::sem_wait(&g_alarm) == 0) {
      const int signal = g_signal;
      report_early(signal, world_size);
      end_by(signal);
    }
  }
}

// Starts the thread, which handles no signals.
void start_thread(int world_size) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(wait_for_signals, world_size).detach();
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void watch_for_an_early_end() noexcept {
  try {
    int rank = -1;
    int size = 1;
    if (g_owner != 0 || !may_act() || !process().configuration.report ||
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS || PMPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS) {
      return;
    }
    g_reports = rank == 0;
    if (g_reports) {
      if (::sem_init(&g_alarm, 0, 0) != 0) {
        return;
      }
      start_thread(size);
    }
    g_owner = ::getpid();
    for (const int signal : kSignals) {
      struct sigaction now {};
      if (::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL) {
        now.sa_handler = on_signal;
        now.sa_flags = SA_RESTART;
        ::sigaction(signal, &now, nullptr);
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): without the thread signals end the job as usual
  }
}

void stop_watching() noexcept {
  for (const int signal : kSignals) {
    struct sigaction now {};
    if (g_owner != 0 && ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
        now.sa_handler == on_signal) {
      now.sa_handler = SIG_DFL;
      ::sigaction(signal, &now, nullptr);
    }
  }
}

}  // namespace gradwire::mpi_preload
