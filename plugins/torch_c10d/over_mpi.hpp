// The group's transport over MPI, where the job was started by an MPI launcher.
#pragma once

#include <chrono>
#include <memory>

#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

/// Collective over the group's ranks, which exchange their ranks in MPI_COMM_WORLD through the store. Initialises MPI
/// if that has not been done. Throws Error(unsupported) in a build without MPI.
[[nodiscard]] std::shared_ptr<Transport> connect_over_mpi(const transport::Rendezvous& store, int rank, int world_size,
                                                          std::chrono::milliseconds timeout);

}  // namespace gradwire::torch_c10d
