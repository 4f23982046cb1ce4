// Where NCCL has a peer's window, asked by a kernel: before 2.29.2 NCCL has no such function for the host.
#pragma once

#include <cstddef>

namespace gradwire::gpu {

/// As ncclGetPeerDevicePointer: `window` is an ncclWindow_t, the result an ncclResult_t. Waits for the device.
int peer_pointer_by_kernel(void* window, std::size_t offset, int peer, void** address);

}  // namespace gradwire::gpu
