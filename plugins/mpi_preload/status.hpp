// Lines of the log while a job runs.
#pragma once

#include "plugins/mpi_preload/comm_state.hpp"

namespace gradwire::mpi_preload {

/// To be called after a compressed call: logs NaN and Inf once; with GRADWIRE_LOG=info it logs what was compressed so
/// far, on rank 0 of MPI_COMM_WORLD, after the first such call and then every half minute.
void tell_of_compressed(const CommState& state) REQUIRES(state.mutex);

}  // namespace gradwire::mpi_preload
