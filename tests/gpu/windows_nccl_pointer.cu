#include "tests/gpu/windows_nccl_pointer.hpp"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>

namespace gradwire::gpu {
namespace {

__global__ void find_pointer(ncclWindow_t window, std::size_t offset, int peer, void** address) {
  *address = ncclGetPeerPointer(window, offset, peer);
}

}  // namespace

int peer_pointer_by_kernel(void* window, std::size_t offset, int peer, void** address) {
  void** found = nullptr;
  if (cudaMalloc(&found, sizeof(void*)) != cudaSuccess) {
    return ncclUnhandledCudaError;
  }
  find_pointer<<<1, 1>>>(static_cast<ncclWindow_t>(window), offset, peer, found);
  const bool copied = cudaMemcpy(address, found, sizeof(void*), cudaMemcpyDeviceToHost) == cudaSuccess;
  cudaFree(found);
  return copied ? ncclSuccess : ncclUnhandledCudaError;
}

}  // namespace gradwire::gpu
