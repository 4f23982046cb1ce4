// Sessions, communicators and tables over MPI. Needs the component `mpi`: target gradwire::mpi.
#pragma once

#include <mpi.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "gradwire/communicator.hpp"
#include "gradwire/mpi_transport.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "gradwire/threading.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::mpi {

/// Makes a session. Where MPI's thread level allows less than `options.threading`, the session uses what it allows. A
/// `transport` must be one of make_transport(), or one that wraps it; a call with `comm` is collective over `comm`.
[[nodiscard]] inline Session make_session(std::shared_ptr<Transport> transport, Policy policy,
                                          SessionOptions options = {}) {
  const Threading asked = std::exchange(options.threading, more_restricted(options.threading, threading()));
  Session session(std::move(transport), std::move(policy), options);
  if (options.threading != asked) {
    tell_of_thread_level();
  }
  return session;
}
[[nodiscard]] inline Session make_session(MPI_Comm comm, Policy policy, SessionOptions options = {}) {
  return make_session(make_transport(comm, options.timeout), std::move(policy), options);
}

using gradwire::kExitExpelled;
using gradwire::kExitTooFew;

/// The main() of a job that goes on when ranks end: initialises MPI, calls loop(processes), which makes its session
/// over them and trains, and ends the process. The exit status is 0 only where all steps that its sessions delivered
/// count for the ranks that go on (Session::confirm(), which the end of a session calls, too). Errors go to stderr.
/// With GRADWIRE_LET_JOIN=FILE in the environment others may join the job; with GRADWIRE_JOIN=FILE this process joins
/// one, without MPI.
template <typename Loop>
[[noreturn]] void elastic_main(int argc, char** argv, Loop&& loop) {
  int exit_code = 0;
  try {
    const std::shared_ptr<Processes> processes = elastic_processes(argc, argv);
    std::forward<Loop>(loop)(processes);
    if (const std::optional<Error> denied = processes->success_denied()) {
      throw Error(*denied);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    exit_code = error.code() == ErrorCode::expelled  ? kExitExpelled
                : error.code() == ErrorCode::too_few ? kExitTooFew
                                                     : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    exit_code = 1;
  }
  end_process(exit_code);
}

/// Makes a table; threading is as for make_session().
[[nodiscard]] inline Table make_table(std::shared_ptr<Transport> transport, TableOptions options) {
  options.threading = more_restricted(options.threading, threading());
  return Table(std::move(transport), std::move(options));
}
[[nodiscard]] inline Table make_table(MPI_Comm comm, TableOptions options) {
  auto transport = make_transport(comm, options.timeout);
  return make_table(std::move(transport), std::move(options));
}

[[nodiscard]] inline Communicator make_communicator(MPI_Comm comm, CommunicatorOptions options = {}) {
  return Communicator(make_transport(comm, options.timeout), options);
}

}  // namespace gradwire::mpi
