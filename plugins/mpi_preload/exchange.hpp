// How ranks agree before there is any private communicator, without ever waiting for good for a rank that has no
// drop-in.
#pragma once

#include <mpi.h>

#include <chrono>
#include <string>
#include <vector>

#include "drop_in/configuration.hpp"
#include "transport/mpi_check_in.hpp"

namespace gradwire::mpi_preload {

/// What every rank says of itself. It is a nonblocking collective on the job's communicator itself: what a rank without
/// the drop-in does there cannot be taken for it.
class SettingsExchange {
 public:
  /// Inside a call of the job. Does not wait.
  SettingsExchange(MPI_Comm comm, const drop_in::RankSettings& mine);
  /// By rank. Error(timeout) names the ranks that said nothing, and `hint` says why that may be.
  [[nodiscard]] std::vector<drop_in::RankSettings> finish(std::chrono::milliseconds limit, const std::string& hint);

 private:
  transport::RecordExchange records_;
};

}  // namespace gradwire::mpi_preload
