// The group's transport over MPI, where the job was started by an MPI launcher.
#pragma once

#include <chrono>
#include <memory>

#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

/// Collective over the group's ranks, whose places in MPI_COMM_WORLD they tell each other through the store.
/// Initialises MPI where that has not been done. Error(unsupported) in a build without MPI.
[[nodiscard]] std::shared_ptr<Transport> connect_over_mpi(const transport::Rendezvous& store, int rank, int world_size,
                                                          std::chrono::milliseconds timeout);

}  // namespace gradwire::torch_c10d
