// CUDA's return codes as Errors.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "gradwire/error.hpp"

namespace gradwire::memory {

/// "out of memory (cudaErrorMemoryAllocation, 2)"
[[nodiscard]] inline std::string cuda_text(cudaError_t error) {
  return std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ", " +
         std::to_string(static_cast<int>(error)) + ")";
}

/// Throws where `result` is an error: Error(out_of_memory), Error(unsupported) for a machine without GPU or driver,
/// Error(transport) otherwise.
inline void cuda_check(cudaError_t result, const std::string& doing) {
  if (result == cudaSuccess) {
    return;
  }
  cudaGetLastError();  // otherwise the next launch would report it
  const std::string text = doing + ": " + cuda_text(result);
  switch (result) {
    case cudaErrorMemoryAllocation: throw Error(ErrorCode::out_of_memory, text + "; leave gradwire more device memory");
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
      throw Error(ErrorCode::unsupported, text + "; is there a GPU, and a driver for this version of CUDA?");
    case cudaErrorInvalidDevice: throw Error(ErrorCode::invalid_argument, text + "; see nvidia-smi for the devices");
    default: throw Error(ErrorCode::transport, text);
  }
}

}  // namespace gradwire::memory
