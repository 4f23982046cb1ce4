#include "transport/mpi_environment.hpp"

#include <csignal>
#include <mutex>

#include "base/log.hpp"
#include "gradwire/mpi_transport.hpp"
#include "transport/mpi_check.hpp"

namespace gradwire::transport {

bool mpi_is_up() noexcept {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

void require_mpi(const std::string& who) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    throw Error(ErrorCode::invalid_argument,
                who + ": MPI is not initialised; call MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...) first");
  }
  if (!mpi_is_up()) {
    throw Error(ErrorCode::invalid_argument,
                who + ": MPI is already finalised; end sessions and transports before MPI_Finalize");
  }
}

int mpi_thread_level() {
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  return level;
}

void check_communicator(MPI_Comm comm) {
  const std::string who = "gradwire::mpi::make_transport";
  require_mpi(who);
  if (comm == MPI_COMM_NULL) {
    throw Error(ErrorCode::invalid_argument, who + ": MPI_COMM_NULL; pass a communicator this rank is part of");
  }
  int inter = 0;
  check_mpi(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  if (inter != 0) {
    throw Error(ErrorCode::invalid_argument,
                who + ": an intercommunicator; merge it with MPI_Intercomm_merge, or pass an intracommunicator");
  }
  int is_main = 1;
  check_mpi(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
  if (is_main == 0 && mpi_thread_level() < MPI_THREAD_SERIALIZED) {
    throw Error(ErrorCode::invalid_argument,
                who +
                    ": not on the thread that initialised MPI; call it there, or initialise with "
                    "MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...)");
  }
}

void ignore_broken_pipes() noexcept {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
      action.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace gradwire::transport

namespace gradwire::mpi {

Threading threading() {
  transport::require_mpi("gradwire::mpi::threading");
  switch (transport::mpi_thread_level()) {
    case MPI_THREAD_MULTIPLE: return Threading::background;
    case MPI_THREAD_SERIALIZED: return Threading::serialized;
    default: return Threading::main_thread;
  }
}

void tell_of_thread_level() {
  static std::once_flag once;
  std::call_once(once, [] {
    int rank = 0;
    transport::check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    if (rank == 0) {
      log(LogLevel::warning,
          "MPI was initialised without MPI_THREAD_MULTIPLE, so gradients travel only inside calls of the session and "
          "not beside the backward pass; use MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted)");
    }
  });
}

}  // namespace gradwire::mpi
