// Sessions, communicators and tables over MPI. Needs the component `mpi`: target gradwire::mpi.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::mpi {

/// How long a rank waits for the others where nothing else is said; sessions, communicators and tables say their own.
inline constexpr std::chrono::milliseconds kCreationTimeout = std::chrono::minutes(5);

/// A transport over a private duplicate of `comm` (freed with it, if MPI is still up). Collective over `comm`.
/// Error(invalid_argument) when MPI is not initialised or already finalised, or `comm` is an intercommunicator.
/// Error(timeout) where a rank does not come within `timeout`, and names it; nothing may be done with `comm` then.
/// Where SIGPIPE would end the process it is ignored from here on: a peer that dies must end in an Error.
[[nodiscard]] std::shared_ptr<Transport> make_transport(MPI_Comm comm,
                                                        std::chrono::milliseconds timeout = kCreationTimeout);

/// What the granted thread level allows.
[[nodiscard]] Threading threading();

/// A transport for `comm`; `link` not empty: emulating that link ("1Gbit/s,50us"), or a schedule of links.
[[nodiscard]] inline std::shared_ptr<Transport> make_transport(MPI_Comm comm, const std::string& link,
                                                               std::chrono::milliseconds timeout = kCreationTimeout) {
  auto transport = make_transport(comm, timeout);
  return link.empty() ? transport : make_throttled(std::move(transport), LinkSchedule::parse(link));
}

/// The same over a link that others of this rank use too; none: as it is.
[[nodiscard]] inline std::shared_ptr<Transport> make_transport(MPI_Comm comm, const std::optional<EmulatedLink>& link,
                                                               std::chrono::milliseconds timeout = kCreationTimeout) {
  auto transport = make_transport(comm, timeout);
  return link ? make_throttled(std::move(transport), *link) : transport;
}

/// `options.threading` is lowered to what MPI's thread level allows. `link`: what make_transport takes.
template <class Emulated = std::string>
[[nodiscard]] Session make_session(MPI_Comm comm, Policy policy, SessionOptions options = {},
                                   const Emulated& link = {}) {
  auto transport = make_transport(comm, link, options.timeout);
  options.threading = std::max(options.threading, threading());
  return Session(std::move(transport), std::move(policy), options);
}

/// Collective over `comm`. `options.threading` as for make_session, `link` too.
template <class Emulated = std::string>
[[nodiscard]] Table make_table(MPI_Comm comm, TableOptions options, const Emulated& link = {}) {
  auto transport = make_transport(comm, link, options.timeout);
  options.threading = std::max(options.threading, threading());
  return Table(std::move(transport), std::move(options));
}

[[nodiscard]] inline Communicator make_communicator(MPI_Comm comm, CommunicatorOptions options = {},
                                                    const std::string& link = {}) {
  return Communicator(make_transport(comm, link, options.timeout), options);
}

}  // namespace gradwire::mpi
