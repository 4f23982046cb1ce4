// Sends messages of one of the job's communicators through the library's private names: over a child of it once there
// is one, else on the job's own. On one communicator NCCL runs all calls in the order in which they were enqueued, the
// same on all ranks, so messages on the job's own cannot block the job's calls. The job's ncclCommAbort ends both.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "plugins/nccl_preload/child_communicator.hpp"
#include "transport/device_messages.hpp"

namespace gradwire::nccl_preload {

class CallerMessages final : public transport::DeviceMessages {
 public:
  /// Does not own `comm`. It must not be used once `ended` is true: then it is being freed, or is freed. `child` is
  /// the one of `comm`.
  CallerMessages(ncclComm_t comm, int rank, int size, std::shared_ptr<const std::atomic<bool>> ended,
                 std::shared_ptr<ChildCommunicator> child)
      : comm_(comm), rank_(rank), size_(size), ended_(std::move(ended)), child_(std::move(child)) {}

  /// The communicator's device. Throws Error(transport) if NCCL does not say.
  [[nodiscard]] int device() const;
  [[nodiscard]] ChildCommunicator& child() noexcept { return *child_; }
  /// Returns the child, if there is one: windows that NCCL maps must be gone before their communicator is, and only the
  /// job says when its own goes.
  [[nodiscard]] void* nccl_communicator() const noexcept override { return child_->get(); }

  [[nodiscard]] std::string name() const override { return "nccl"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return size_; }
  void begin_group() override;
  void send(std::span<const std::byte> bytes, int peer, void* stream) override;
  void receive(std::span<std::byte> bytes, int peer, void* stream) override;
  void all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) override;
  /// Inside nodes NCCL sums on a communicator that is split from the child.
  [[nodiscard]] bool sums_in_nodes() const noexcept override { return child_->splits(); }
  /// The child must have been split by node. Sends nothing: NCCL connects ranks in the first trial, which does not
  /// count.
  void join_node(int node, int place, std::span<std::byte> scratch, void* stream) override;
  void sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest,
                   void* stream) override;
  void gather_in_node(void* all, std::uint64_t bytes, void* stream) override;
  /// Enqueues on `stream` and the job's communicator: replaces each of `count` words in device memory by the largest
  /// one of all ranks. Must not be called in a group.
  void find_largest(std::uint32_t* words, std::size_t count, void* stream);
  /// Enqueues on `stream` and the job's communicator: rank r sends bytes [r * each, (r + 1) * each) of `all`, and gets
  /// the other ones. Unlike messages it takes no memory for a connection to every rank.
  void gather(std::byte* all, std::size_t each, void* stream);
  void end_group() override;
  void poll() override;
  /// Does nothing: only the job may abort its communicator, and with it the child.
  void abort(const Error& /*error*/) noexcept override {}

 private:
  ncclComm_t comm_;
  int rank_;
  int size_;
  std::shared_ptr<const std::atomic<bool>> ended_;
  std::shared_ptr<ChildCommunicator> child_;
  ncclComm_t sending_ = nullptr;  // the communicator of the messages of the open group
  int place_ = 0;                 // of this rank in its node
  int places_ = 1;
};

}  // namespace gradwire::nccl_preload
