#include "plugins/nccl_preload/cuda_gather.hpp"

#include <string>
#include <utility>

#include "base/awake_time.hpp"
#include "base/end_wait.hpp"
#include "base/units.hpp"
#include "exchange/stream/stream_cuda_device.hpp"
#include "memory/cuda_check.hpp"

namespace gradwire::nccl_preload {
namespace {

using memory::cuda_check;

}  // namespace

CudaGather::CudaGather(std::unique_ptr<CallerMessages> messages)
    : messages_(std::move(messages)), device_(messages_->device()) {
  const exchange::OnCudaDevice current(device_);
  const std::size_t bytes = kMostBytes * static_cast<std::size_t>(messages_->world_size());
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();  // otherwise the next launch would report it
    on_host_ = true;
    cuda_check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault),
               "taking " + format_bytes(bytes) + " of the device's or of pinned host memory");
  }
  all_ = static_cast<std::byte*>(memory);
  try {
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  } catch (...) {
    on_host_ ? cudaFreeHost(all_) : cudaFree(all_);
    throw;
  }
}

CudaGather::~CudaGather() {
  if (under_way_) {
    return;
  }
  try {
    const exchange::OnCudaDevice current(device_);
    on_host_ ? cudaFreeHost(all_) : cudaFree(all_);
    cudaStreamDestroy(stream_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the device is gone, and its memory with it
  }
}

void CudaGather::put(std::span<const std::byte> mine) {
  const exchange::OnCudaDevice current(device_);
  each_ = mine.size();
  cuda_check(cudaMemcpyAsync(all_ + static_cast<std::size_t>(messages_->rank()) * each_, mine.data(), each_,
                             cudaMemcpyDefault, stream_),
             "copying " + std::to_string(each_) + " bytes for the ranks' agreement");
}

void CudaGather::post() {
  const exchange::OnCudaDevice current(device_);
  messages_->gather(all_, each_, stream_);
  under_way_ = true;
}

void CudaGather::take(std::span<std::byte> all, std::chrono::milliseconds timeout) {
  const exchange::OnCudaDevice current(device_);
  AwakeTime time;
  cudaError_t state = cudaSuccess;
  while ((state = cudaStreamQuery(stream_)) == cudaErrorNotReady) {
    messages_->poll();
    if (time.waited() > timeout) {
      throw Error(ErrorCode::timeout,
                  "rank " + std::to_string(messages_->rank()) + ": the " + std::to_string(messages_->world_size()) +
                      " ranks of a communicator did not agree in " + format_duration(timeout) +
                      "; are all ranks alive, and do all of them load the drop-in and make the same calls?",
                  ErrorCause::world);
    }
    pause_after(time.waited());
  }
  cuda_check(state, "rank " + std::to_string(messages_->rank()) + ": the ranks' agreement failed");
  under_way_ = false;
  cuda_check(cudaMemcpyAsync(all.data(), all_, all.size(), cudaMemcpyDefault, stream_), "copying what the ranks say");
  cuda_check(cudaStreamSynchronize(stream_), "copying what the ranks say");
}

}  // namespace gradwire::nccl_preload
