// Transports over MPI. Needs the component `mpi`: target gradwire::mpi.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>

#include "gradwire/processes.hpp"
#include "gradwire/threading.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::mpi {

/// How long a rank waits for the others by default; sessions, communicators and tables have a timeout of their own.
inline constexpr std::chrono::milliseconds kCreationTimeout = std::chrono::minutes(5);

/// A transport over a private duplicate of `comm` (freed with it, if MPI is still up). Collective over `comm`.
/// Error(invalid_argument) when MPI is not initialised or already finalised, or `comm` is an intercommunicator.
/// Error(timeout), which names the rank, where a rank does not come within `timeout`; `comm` must not be used then.
/// Where SIGPIPE would end the process it is ignored from here on: a peer that dies must lead to an Error.
[[nodiscard]] std::shared_ptr<Transport> make_transport(MPI_Comm comm,
                                                        std::chrono::milliseconds timeout = kCreationTimeout);

/// All processes of `comm`, for a session that goes on when some of them end. Collective. The launcher must let the
/// others live: `mpirun --enable-recovery` (Open MPI 4.1 and 5). Error(unsupported) without MPI_THREAD_MULTIPLE. After
/// a rank has ended, MPI_Finalize may wait for ever, so end the process by end_process().
[[nodiscard]] std::shared_ptr<Processes> make_processes(MPI_Comm comm,
                                                        std::chrono::milliseconds timeout = kCreationTimeout);

struct JoinFile {
  std::string path;            // the job writes it, and processes that join read it
  std::string interface = {};  // the only network interface to use, such as "eth0"; empty: all
  std::chrono::milliseconds timeout = kCreationTimeout;
};
/// Processes that others may join while they run. They find each other by MPI, and use TCP connections of their own
/// from then on, for their worlds too, so that they need no thread level of MPI. Error(invalid_argument) on all where
/// the file cannot be written, is no join file, or is that of a job that runs.
[[nodiscard]] std::shared_ptr<Processes> make_processes(MPI_Comm comm, const JoinFile& join_file);
/// Makes this process, which uses no MPI, join a job that runs. Error(timeout) where no process in the file answers, or
/// one does not answer within `timeout`; Error(invalid_argument) where the file is missing, empty, a link, another
/// user's or one that others can read or write; Error(mismatch) where it is of another version of gradwire.
[[nodiscard]] std::shared_ptr<Processes> join_processes(const JoinFile& join_file);
/// The processes that elastic_main() uses. With GRADWIRE_JOIN this process joins a job; otherwise MPI is initialised,
/// and with GRADWIRE_LET_JOIN others may join. First it forks a small process, which tells processes of other hosts
/// once this one has ended. Call it early: the small process keeps the memory of this moment until this process ends.
[[nodiscard]] std::shared_ptr<Processes> elastic_processes(int& argc, char**& argv);

/// Ends this process. It calls MPI_Finalize, for at most a minute, where MPI is up, no rank was lost and the code is 0;
/// otherwise not, since MPI_Finalize may wait for ranks that are gone.
[[noreturn]] void end_process(int exit_code);

/// The threads that may communicate at the thread level that MPI granted.
[[nodiscard]] Threading threading();
/// Logs once, on rank 0 of MPI_COMM_WORLD, that the thread level keeps gradients from travelling beside the backward
/// pass. make_session() calls it where it makes `options.threading` more restricted.
void tell_of_thread_level();

}  // namespace gradwire::mpi
