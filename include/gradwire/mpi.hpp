// Sessions and communicators over MPI. Needs the component `mpi`: target gradwire::mpi.
#pragma once

#include <mpi.h>

#include <memory>

#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"

namespace gradwire::mpi {

/// A transport over a private duplicate of `comm` (freed with it, if MPI is still up). Collective over `comm`.
/// Error(invalid_argument) when MPI is not initialised or already finalised, or `comm` is an intercommunicator.
[[nodiscard]] std::shared_ptr<Transport> make_transport(MPI_Comm comm);

/// What the granted thread level allows.
[[nodiscard]] Threading threading();

/// `options.threading` is lowered to what the thread level allows. `link` not empty: emulate that link ("1Gbit/s,50us").
[[nodiscard]] Session make_session(MPI_Comm comm, Policy policy, SessionOptions options = {}, const std::string& link = {});
[[nodiscard]] Communicator make_communicator(MPI_Comm comm, CommunicatorOptions options = {}, const std::string& link = {});

}  // namespace gradwire::mpi
