// The exchange by which ranks agree, over CUDA and the job's communicator: a copy to the device, an all-gather by NCCL
// and a copy back, on a stream of its own. Its memory and its stream are taken when it is made.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "drop_in/rank_gather.hpp"
#include "plugins/nccl_preload/caller_messages.hpp"

namespace gradwire::nccl_preload {

class CudaGather final : public drop_in::RankGather {
 public:
  /// Takes 136 bytes a rank of the device's memory, or of pinned host memory if the device has none: NCCL takes both.
  /// Throws Error(out_of_memory) if there is neither.
  explicit CudaGather(std::unique_ptr<CallerMessages> messages);
  /// If an exchange has not ended, which an abort of the job may cause, it leaks the memory.
  ~CudaGather() override;

  void put(std::span<const std::byte> mine) override;
  void post() override;
  void take(std::span<std::byte> all, std::chrono::milliseconds timeout) override;

 private:
  std::unique_ptr<CallerMessages> messages_;
  int device_;
  cudaStream_t stream_ = nullptr;
  std::byte* all_ = nullptr;  // by rank
  bool on_host_ = false;
  std::size_t each_ = 0;
  bool under_way_ = false;
};

}  // namespace gradwire::nccl_preload
