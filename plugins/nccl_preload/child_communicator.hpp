// Holds NCCL's communicators of gradwire beside one of the job's: one for messages, and one of each node's ranks for
// sums inside nodes. They end together with the job's.
#pragma once

#include <nccl.h>

#include <functional>
#include <optional>

#include "base/mutex.hpp"
#include "drop_in/own_communicator.hpp"

namespace gradwire::nccl_preload {

/// One thread at a time may use it, except for abort().
class ChildCommunicator final : public drop_in::OwnCommunicator {
 public:
  /// Does not own `parent`. `shares` says that a child of it would share its resources: then there is none, since NCCL
  /// would run the two in one order, and abort both.
  ChildCommunicator(ncclComm_t parent, int rank, int size, bool shares)
      : parent_(parent), rank_(rank), size_(size), shares_(shares) {}
  /// Destroys it, as the job does with its own before.
  ~ChildCommunicator() override;

  /// Sets what asks for memory of the device before the communicator is made.
  void set_memory_check(std::function<bool()> has_memory) { has_memory_ = std::move(has_memory); }

  [[nodiscard]] bool settled() const noexcept override { return settled_; }
  [[nodiscard]] Offer offer() noexcept override;
  [[nodiscard]] bool make(std::span<const Offer> offers) noexcept override;
  void settle(bool all) noexcept override;
  [[nodiscard]] bool split(std::uint32_t node, int place) noexcept override;
  void settle_split(bool all) noexcept override;
  /// Returns whether NCCL can split it by node.
  [[nodiscard]] bool splits() const;

  /// Returns the communicator, null if there is none, for calls until leave(). Throws Error(aborted) after abort().
  [[nodiscard]] ncclComm_t enter();
  /// Returns the communicator, null if there is none or it is aborted.
  [[nodiscard]] ncclComm_t get() const {
    const MutexLock lock(mutex_);
    return comm_;
  }
  void leave() noexcept;
  /// Returns the communicator of this rank's node, null if there is none, for calls between enter() and leave().
  [[nodiscard]] ncclComm_t node() const {
    const MutexLock lock(mutex_);
    return node_;
  }

  /// Ends its work. Any thread may call it.
  void abort() noexcept;

 private:
  // Keeps what was made as this member if all ranks have made it; else frees it.
  void adopt(bool all, ncclComm_t ChildCommunicator::*place) noexcept;

  ncclComm_t parent_;
  int rank_;
  int size_;
  bool shares_;
  std::function<bool()> has_memory_;
  bool settled_ = false;
  ncclComm_t made_ = nullptr;  // not yet settled
  mutable Mutex mutex_;        // not held during calls of NCCL
  CondVar left_;
  ncclComm_t comm_ GUARDED_BY(mutex_) = nullptr;
  ncclComm_t node_ GUARDED_BY(mutex_) = nullptr;
  int inside_ GUARDED_BY(mutex_) = 0;  // number of calls and groups under way
  bool aborted_ GUARDED_BY(mutex_) = false;
};

}  // namespace gradwire::nccl_preload
