// An exchange of the ranks' words over CUDA and the job's communicator: a copy to the device, an all-reduce by NCCL
// and a copy back, all on the stream of one of the job's calls.
#pragma once

#include <cuda_runtime_api.h>

#include "drop_in/device_exchange.hpp"
#include "plugins/nccl_preload/caller_messages.hpp"

namespace gradwire::nccl_preload {

/// All calls need the device to be current.
class CudaExchange final : public drop_in::ExchangePort {
 public:
  /// `messages` must outlive all calls.
  CudaExchange(CallerMessages& messages, int device) : messages_(messages), device_(device) {}
  /// Waits for an exchange that is under way. If that does not end, which an abort of the job may cause, it leaks the
  /// memory.
  ~CudaExchange() override;

  /// Takes 1 KiB of the device's memory and 2 KiB of pinned host memory.
  void open() override;
  void begin(std::span<const std::uint32_t> mine, void* stream) override;
  [[nodiscard]] bool arrived() override;
  void finish(std::span<std::uint32_t> largest, std::chrono::milliseconds timeout) override;
  void meet(void* stream) override;

 private:
  static constexpr std::size_t kBytes = drop_in::DeviceExchange::kWords * sizeof(std::uint32_t);

  CallerMessages& messages_;
  int device_;
  std::uint32_t* words_ = nullptr;   // device memory: kBytes, and a word for meet()
  std::uint32_t* mine_ = nullptr;    // pinned; read until the result has arrived
  std::uint32_t* result_ = nullptr;  // pinned, behind `mine_`
  cudaEvent_t copied_ = nullptr;
  bool under_way_ = false;
};

}  // namespace gradwire::nccl_preload
