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

// Runs a call under the lock of the device. After a finding all calls fail.
template <class Body>
cudaError_t guarded(Body&& body) {
  Device& device = Device::instance();
  ++device.callers;
  const std::lock_guard lock(device.mutex);
  --device.callers;
  if (device.failed()) {
    return give(cudaErrorLaunchFailure);
  }
  try {
    return give(body(device));
  } catch (const Finding& finding) {
    device.note(finding.what());
  } catch (const std::exception& error) {
    device.note(std::string("the interpreter failed: ") + error.what());
  }
  return give(cudaErrorLaunchFailure);
}

inline cudaError_t state_of(const Device& device) { return device.failed() ? cudaErrorLaunchFailure : cudaSuccess; }

}  // namespace gradwire::ptx

#define GRADWIRE_PTX_API extern "C" __attribute__((visibility("default")))
