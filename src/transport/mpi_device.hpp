// CUDA-aware MPI.
#pragma once

#include <mpi.h>

#include <chrono>

namespace gradwire::transport {

/// Whether MPI says at run time that it takes device memory; false where it has no MPIX_Query_cuda_support.
[[nodiscard]] bool mpi_supports_device_memory() noexcept;
/// Whether all ranks say so, which changes the layout of messages. Collective; Error(timeout) names the absent ranks.
[[nodiscard]] bool all_support_device_memory(MPI_Comm comm, bool mine, std::chrono::milliseconds timeout);

}  // namespace gradwire::transport
