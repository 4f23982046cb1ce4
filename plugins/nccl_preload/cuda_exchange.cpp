#include "plugins/nccl_preload/cuda_exchange.hpp"

#include <algorithm>
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

void CudaExchange::open() {
  void* pinned = nullptr;
  void* words = nullptr;
  cuda_check(cudaHostAlloc(&pinned, 2 * kBytes, cudaHostAllocDefault), "pinning 2 KiB of host memory");
  mine_ = static_cast<std::uint32_t*>(pinned);
  result_ = mine_ + kBytes / sizeof(std::uint32_t);
  try {
    cuda_check(cudaMalloc(&words, kBytes + sizeof(std::uint32_t)), "taking 1 KiB of device memory");
    words_ = static_cast<std::uint32_t*>(words);
    cuda_check(cudaMemset(words_, 0, kBytes + sizeof(std::uint32_t)), "clearing 1 KiB of device memory");
    cuda_check(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming), "making an event");
  } catch (...) {
    cudaFree(std::exchange(words_, nullptr));
    cudaFreeHost(std::exchange(mine_, nullptr));
    throw;
  }
}

CudaExchange::~CudaExchange() {
  if (copied_ == nullptr) {
    return;
  }
  try {
    const exchange::OnCudaDevice current(device_);
    EndWait wait;
    while (under_way_ && cudaEventQuery(copied_) == cudaErrorNotReady) {
      if (wait.over()) {
        return;
      }
      pause_after(wait.waited());
    }
    cudaEventDestroy(copied_);
    cudaFree(words_);
    cudaFreeHost(mine_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the device is gone, and its memory with it
  }
}

void CudaExchange::begin(std::span<const std::uint32_t> mine, void* stream) {
  auto* const on = static_cast<cudaStream_t>(stream);
  std::copy(mine.begin(), mine.end(), mine_);
  cuda_check(cudaMemcpyAsync(words_, mine_, kBytes, cudaMemcpyHostToDevice, on), "copying words to the device");
  messages_.find_largest(words_, mine.size(), stream);
  cuda_check(cudaMemcpyAsync(result_, words_, kBytes, cudaMemcpyDeviceToHost, on), "copying words from the device");
  cuda_check(cudaEventRecord(copied_, on), "recording an event");
  under_way_ = true;
}

bool CudaExchange::arrived() {
  const cudaError_t state = cudaEventQuery(copied_);
  if (state != cudaErrorNotReady) {
    cuda_check(state, "rank " + std::to_string(messages_.rank()) + ": the ranks' exchange of numbers failed");
  }
  return state == cudaSuccess;
}

void CudaExchange::finish(std::span<std::uint32_t> largest, std::chrono::milliseconds timeout) {
  AwakeTime time;
  while (!arrived()) {
    messages_.poll();
    if (time.waited() > timeout) {
      throw Error(ErrorCode::timeout,
                  "rank " + std::to_string(messages_.rank()) + ": an exchange of numbers among the " +
                      std::to_string(messages_.world_size()) + " ranks of a communicator, which was enqueued " +
                      std::to_string(drop_in::DeviceExchange::kCallsApart) + " calls ago, did not end in " +
                      format_duration(timeout) + "; are all ranks alive, and do they make the same calls?",
                  ErrorCause::world);
    }
    pause_after(time.waited());
  }
  under_way_ = false;
  std::copy_n(result_, largest.size(), largest.begin());
}

void CudaExchange::meet(void* stream) { messages_.find_largest(words_ + kBytes / sizeof(std::uint32_t), 1, stream); }

}  // namespace gradwire::nccl_preload
