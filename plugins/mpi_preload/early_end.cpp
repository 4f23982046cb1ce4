#include "plugins/mpi_preload/early_end.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include "plugins/mpi_preload/process.hpp"

namespace gradwire::mpi_preload {
namespace {

constexpr std::array kSignals{SIGTERM, SIGINT, SIGHUP, SIGXCPU};

// Set before a handler is.
int g_alarm = -1;  // a pipe's end for writing
pid_t g_owner = 0;

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

// It only wakes the thread, which may take locks. The thread that was interrupted goes on, and gives back those that it
// holds.
void on_signal(int signal) {
  const int before = errno;
  if (::getpid() != g_owner) {  // a fork, which has no such thread
    end_by(signal);
  } else {
    const auto number = static_cast<unsigned char>(signal);
    static_cast<void>(!::write(g_alarm, &number, 1));
  }
  errno = before;
}

void wait_for_signals(int alarm, int world_size) {
  unsigned char number = 0;
  for (ssize_t got = 0; (got = ::read(alarm, &number, 1)) != 0;) {
    if (got == 1) {
      report_early(number, world_size);
      end_by(number);
    } else if (errno != EINTR) {
      return;
    }
  }
}

// No signal is ever handled there.
void start_thread(int alarm, int world_size) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(wait_for_signals, alarm, world_size).detach();
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
    std::array<int, 2> ends{};
    if (g_owner != 0 || !may_act() || !process().configuration.report ||
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS || rank != 0 ||
        PMPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS || ::pipe2(ends.data(), O_CLOEXEC) != 0) {
      return;
    }
    start_thread(ends[0], size);
    g_alarm = ends[1];
    g_owner = ::getpid();
    for (const int signal : kSignals) {
      struct sigaction now {};
      if (::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL) {
        now.sa_handler = on_signal;
        now.sa_flags = SA_RESTART;
        ::sigaction(signal, &now, nullptr);
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): no thread: then signals end the job as ever
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
