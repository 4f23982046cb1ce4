// Sessions, communicators and tables over MPI. Needs the component `mpi`: target gradwire::mpi.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "gradwire/communicator.hpp"
#include "gradwire/mpi_transport.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::mpi {

/// Collective over `comm`. `options.threading` is lowered to what MPI's thread level allows.
/// Over a transport: one that make_transport() made, or that is over such a one.
[[nodiscard]] inline Session make_session(std::shared_ptr<Transport> transport, Policy policy,
                                          SessionOptions options = {}) {
  const bool lowered = options.threading < threading();
  options.threading = std::max(options.threading, threading());
  Session session(std::move(transport), std::move(policy), options);
  if (lowered) {
    tell_of_thread_level();
  }
  return session;
}
[[nodiscard]] inline Session make_session(MPI_Comm comm, Policy policy, SessionOptions options = {}) {
  return make_session(make_transport(comm, options.timeout), std::move(policy), options);
}

/// As make_session().
[[nodiscard]] inline Table make_table(std::shared_ptr<Transport> transport, TableOptions options) {
  options.threading = std::max(options.threading, threading());
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
