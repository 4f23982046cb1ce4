#include "exchange/stream/stream_cuda_port.hpp"

#include <dlfcn.h>

#include <atomic>
#include <new>
#include <string>

#include "gradwire/error.hpp"
#include "memory/cuda_check.hpp"

namespace gradwire::exchange {
namespace {

using memory::cuda_check;

// Finds a function of the driver, which the runtime has loaded. A program that links the driver would not start on a
// machine without one.
void* driver_function(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY);
  void* function = library == nullptr ? nullptr : dlsym(library, name);
  if (function == nullptr) {
    throw Error(ErrorCode::unsupported, std::string("device tensors over this transport need a CUDA driver with ") +
                                            name + "; install driver 530 or newer, or use NCCL");
  }
  return function;
}

void check(CUresult result, const std::string& doing) {
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::internal, doing + ": CUresult " + std::to_string(static_cast<int>(result)));
  }
}

}  // namespace

CudaPort::CudaPort(int device) : device_(device), pinned_(device) {
  write_ = reinterpret_cast<Operation>(driver_function("cuStreamWriteValue32_v2"));
  wait_ = reinterpret_cast<Operation>(driver_function("cuStreamWaitValue32_v2"));
  words_ = new (pinned_.acquire(sizeof(Words))) Words;
  int flushes = 0;
  cuda_check(cudaDeviceGetAttribute(&flushes, cudaDevAttrCanFlushRemoteWrites, device),
             "asking device " + std::to_string(device) + " about remote writes");
  if (flushes != 0) {
    wait_flags_ |= CU_STREAM_WAIT_VALUE_FLUSH;  // a network adapter may have written to device memory
  }
}

void CudaPort::enter() { cuda_check(cudaSetDevice(device_), "choosing device " + std::to_string(device_)); }

void CudaPort::require_no_capture(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status),
             "asking whether the stream is being captured");
  if (status != cudaStreamCaptureStatusNone) {
    throw Error(ErrorCode::unsupported, "messages over a transport cannot be captured into a graph; use NCCL");
  }
}

void CudaPort::copy_to_host(void* stream, std::byte* staging, std::span<const std::byte> device) {
  cuda_check(
      cudaMemcpyAsync(staging, device.data(), device.size(), cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream)),
      "staging " + std::to_string(device.size()) + " bytes to send");
}

void CudaPort::copy_to_device(void* stream, std::span<std::byte> device, const std::byte* staging) {
  cuda_check(
      cudaMemcpyAsync(device.data(), staging, device.size(), cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)),
      "unstaging " + std::to_string(device.size()) + " received bytes");
}

CUdeviceptr CudaPort::seen_by_device(Number& word) {
  void* address = nullptr;
  cuda_check(cudaHostGetDevicePointer(&address, &word, 0), "asking where the device sees pinned memory");
  return reinterpret_cast<CUdeviceptr>(address);
}

void CudaPort::tell_host(void* stream, Number number) {
  check(write_(static_cast<CUstream>(stream), seen_by_device(words_->told), number, CU_STREAM_WRITE_VALUE_DEFAULT),
        "making a stream tell the host (cuStreamWriteValue32)");
}

void CudaPort::wait_for_host(void* stream, Number number) {
  check(wait_(static_cast<CUstream>(stream), seen_by_device(words_->go), number, wait_flags_),
        "making a stream wait for the host (cuStreamWaitValue32)");
}

transport::StreamPort::Number CudaPort::told() const noexcept {
  return std::atomic_ref(words_->told).load(std::memory_order_acquire);
}

void CudaPort::tell_stream(Number number) noexcept {
  std::atomic_ref(words_->go).store(number, std::memory_order_release);
}

}  // namespace gradwire::exchange
