// Messages on the job's own communicator, through the library's private names. On one communicator NCCL runs everything
// in the order in which it was enqueued, on all ranks alike, so ours cannot block the job's; and the job's
// ncclCommAbort ends them.
#pragma once

#include <nccl.h>

#include <atomic>
#include <memory>

#include "transport/device_messages.hpp"

namespace gradwire::nccl_preload {

class CallerMessages final : public transport::DeviceMessages {
 public:
  /// Not owned: `ended` says that the communicator is going, or gone, and must not be asked any more.
  CallerMessages(ncclComm_t comm, int rank, int size, std::shared_ptr<const std::atomic<bool>> ended)
      : comm_(comm), rank_(rank), size_(size), ended_(std::move(ended)) {}

  /// Of the communicator. Error(transport) where NCCL does not say.
  [[nodiscard]] int device() const;

  [[nodiscard]] std::string name() const override { return "nccl"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return size_; }
  void begin_group() override;
  void send(std::span<const std::byte> bytes, int peer, void* stream) override;
  void receive(std::span<std::byte> bytes, int peer, void* stream) override;
  void all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) override;
  void end_group() override;
  void poll() override;
  /// The communicator is the job's, and so is its end.
  void abort(ErrorCode /*code*/, const std::string& /*message*/) noexcept override {}

 private:
  ncclComm_t comm_;
  int rank_;
  int size_;
  std::shared_ptr<const std::atomic<bool>> ended_;
};

}  // namespace gradwire::nccl_preload
