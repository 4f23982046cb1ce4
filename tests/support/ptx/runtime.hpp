// What the functions of the runtime share.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "tests/support/ptx/queues.hpp"

namespace gradwire::ptx {

inline thread_local cudaError_t t_last = cudaSuccess;

inline cudaError_t give(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) {
    t_last = error;
  }
  return error;
}

template <class Body>
cudaError_t guarded(Body&& body) {
  return give(guarded_call(cudaErrorLaunchFailure, body));
}

inline cudaError_t state_of(const Device& device) { return device.failed() ? cudaErrorLaunchFailure : cudaSuccess; }

}  // namespace gradwire::ptx

#define GRADWIRE_PTX_API extern "C" __attribute__((visibility("default")))
