// CUDA-aware MPI.
#pragma once

#include <mpi.h>

#include <chrono>

namespace gradwire::transport {

/// What MPI says at run time; false where it cannot be asked (MPIX_Query_cuda_support).
[[nodiscard]] bool mpi_supports_device_memory() noexcept;
/// Whether all ranks say so: messages look different then. Collective; Error(timeout) names who does not come.
[[nodiscard]] bool all_support_device_memory(MPI_Comm comm, bool mine, std::chrono::milliseconds timeout);

}  // namespace gradwire::transport
