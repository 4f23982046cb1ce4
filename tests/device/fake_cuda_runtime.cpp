// A CUDA runtime without a GPU, for one program: memory is the host's, streams and events are numbers, and calls are
// counted. Kernels run where they are launched, memory is cleared at once, and no copy is ever made.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "tests/device/counted_device.hpp"

namespace {

constexpr std::align_val_t kAlignment{512};
std::atomic<std::uintptr_t> handles = 0;  // of streams and events that were made
std::atomic<std::uint64_t> records = 0;
std::atomic<std::uint64_t> waits = 0;
std::vector<int> priorities;  // of streams

template <class Handle>
cudaError_t make(Handle* handle) {
  *handle = reinterpret_cast<Handle>(++handles);  // NOLINT(performance-no-int-to-ptr): nobody looks behind it
  return cudaSuccess;
}

cudaError_t allocate(void** data, std::size_t bytes) {
  *data = ::operator new(bytes, kAlignment, std::nothrow);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t release(void* data) {
  ::operator delete(data, kAlignment);
  return cudaSuccess;
}

}  // namespace

std::uint64_t gradwire::test::event_calls() { return records + waits; }
std::vector<int> gradwire::test::take_stream_priorities() { return std::exchange(priorities, {}); }

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int /*device*/) { return cudaSuccess; }
cudaError_t cudaMalloc(void** data, std::size_t bytes) { return allocate(data, bytes); }
cudaError_t cudaFree(void* data) { return release(data); }
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned /*flags*/) { return allocate(data, bytes); }
cudaError_t cudaFreeHost(void* data) { return release(data); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int priority) {
  priorities.push_back(priority);
  return make(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamGetDevice(cudaStream_t /*stream*/, int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t /*stream*/, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t /*stream*/, cudaEvent_t /*event*/, unsigned /*flags*/) {
  return ++waits, cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) { return make(event); }
cudaError_t cudaEventDestroy(cudaEvent_t /*event*/) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t /*event*/, cudaStream_t /*stream*/) { return ++records, cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t /*event*/) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/, cudaMemcpyKind /*kind*/,
                            cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t /*stream*/) {
  return cudaMemset(data, value, bytes);
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return std::memset(data, value, bytes), cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int /*device*/) {
  return std::snprintf(text, static_cast<std::size_t>(bytes), "0000:00:00.0"), cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int /*device*/, unsigned /*flags*/) { return cudaSuccess; }
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* /*handle*/, void* /*data*/) { return cudaSuccess; }
cudaError_t cudaIpcOpenMemHandle(void** /*data*/, cudaIpcMemHandle_t /*handle*/, unsigned /*flags*/) {
  return cudaErrorNotSupported;
}
cudaError_t cudaIpcCloseMemHandle(void* /*data*/) { return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* /*data*/) {
  *attributes = {};
  attributes->type = cudaMemoryTypeDevice;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t /*error*/) { return "an error"; }
const char* cudaGetErrorString(cudaError_t /*error*/) { return "of the fake runtime"; }
}
