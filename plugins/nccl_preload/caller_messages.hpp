// Sends messages on the job's own communicator, through the library's private names. On one communicator NCCL runs all
// calls in the order in which they were enqueued, the same on all ranks, so these messages cannot block the job's
// calls; and the job's ncclCommAbort ends them.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/device_messages.hpp"

namespace gradwire::nccl_preload {

class CallerMessages final : public transport::DeviceMessages {
 public:
  /// Does not own `comm`. It must not be used once `ended` is true: then it is being freed, or is freed.
  CallerMessages(ncclComm_t comm, int rank, int size, std::shared_ptr<const std::atomic<bool>> ended)
      : comm_(comm), rank_(rank), size_(size), ended_(std::move(ended)) {}

  /// The communicator's device. Throws Error(transport) if NCCL does not say.
  [[nodiscard]] int device() const;

  [[nodiscard]] std::string name() const override { return "nccl"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return size_; }
  void begin_group() override;
  void send(std::span<const std::byte> bytes, int peer, void* stream) override;
  void receive(std::span<std::byte> bytes, int peer, void* stream) override;
  void all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) override;
  /// Enqueues on `stream`: replaces each of `count` words in device memory by the largest one of all ranks. In no
  /// group.
  void find_largest(std::uint32_t* words, std::size_t count, void* stream);
  void end_group() override;
  void poll() override;
  /// Does nothing: the communicator is the job's, and only the job may abort it.
  void abort(const Error& /*error*/) noexcept override {}

 private:
  ncclComm_t comm_;
  int rank_;
  int size_;
  std::shared_ptr<const std::atomic<bool>> ended_;
};

}  // namespace gradwire::nccl_preload
