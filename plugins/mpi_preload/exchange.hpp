// How ranks agree before there is any private communicator, without ever waiting for good for a rank that has no
// drop-in.
#pragma once

#include <mpi.h>

#include <chrono>
#include <string>
#include <vector>

#include "drop_in/configuration.hpp"

namespace gradwire::mpi_preload {

/// What every rank says of itself, by rank. Error(timeout) names the ranks that said nothing, and `hint` says why that
/// may be. It is a nonblocking collective on the job's communicator itself: what a rank without the drop-in does there
/// cannot be taken for it.
[[nodiscard]] std::vector<drop_in::RankSettings> exchange_settings(MPI_Comm comm, int size,
                                                                   const drop_in::RankSettings& mine,
                                                                   std::chrono::milliseconds limit,
                                                                   const std::string& hint);

}  // namespace gradwire::mpi_preload
