#include "plugins/nccl_preload/child_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "gradwire/error.hpp"
#include "plugins/nccl_preload/real.hpp"

GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommAbort, (ncclComm_t))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommDestroy, (ncclComm_t))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommInitRank, (ncclComm_t*, int, ncclUniqueId, int))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommSplit, (ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclGetUniqueId, (ncclUniqueId*))

namespace gradwire::nccl_preload {
namespace {

// A call of NCCL that takes longer than this waits for another rank, and ends with an error once the communicator is
// aborted.
constexpr std::chrono::milliseconds kStuck{500};

}  // namespace

ChildCommunicator::~ChildCommunicator() {
  settle(false);
  ncclComm_t comm = nullptr;
  ncclComm_t node = nullptr;
  {
    const MutexLock lock(mutex_);
    comm = std::exchange(comm_, nullptr);
    node = std::exchange(node_, nullptr);
  }
  for (ncclComm_t one : {node, comm}) {
    if (one != nullptr) {
      GRADWIRE_NCCL_REAL(ncclCommDestroy)(one);
    }
  }
}

drop_in::OwnCommunicator::Offer ChildCommunicator::offer() noexcept {
  static_assert(sizeof(ncclUniqueId) == sizeof(Offer::name));
  Offer offer;
  offer.splits = GRADWIRE_NCCL_HAS(ncclCommSplit) ? 1 : 0;
  offer.able = !shares_ && has_memory_() ? 1 : 0;
  if (offer.splits == 0 && rank_ == 0) {
    ncclUniqueId id{};
    offer.able = GRADWIRE_NCCL_REAL(ncclGetUniqueId)(&id) == ncclSuccess ? offer.able : 0;
    std::memcpy(offer.name.data(), &id, sizeof id);
  }
  return offer;
}

// A child inherits the job's configuration of its parent, such as the number of its blocks, and that it blocks.
bool ChildCommunicator::make(std::span<const Offer> offers) noexcept {
  const bool all = std::all_of(offers.begin(), offers.end(),
                               [&](const Offer& offer) { return offer.able != 0 && offer.splits == offers[0].splits; });
  if (!all) {
    return false;
  }
  ncclResult_t result = ncclSuccess;
  if (offers[0].splits != 0) {
    result = GRADWIRE_NCCL_REAL(ncclCommSplit)(parent_, 0, rank_, &made_, nullptr);
  } else {
    ncclUniqueId id{};
    std::memcpy(&id, offers[0].name.data(), sizeof id);
    result = GRADWIRE_NCCL_REAL(ncclCommInitRank)(&made_, size_, id, rank_);
  }
  if (result != ncclSuccess) {
    settle(false);
  }
  return result == ncclSuccess;
}

void ChildCommunicator::settle(bool all) noexcept {
  settled_ = true;
  adopt(all, &ChildCommunicator::comm_);
}

bool ChildCommunicator::splits() const { return get() != nullptr && GRADWIRE_NCCL_HAS(ncclCommSplit); }

bool ChildCommunicator::split(std::uint32_t node, int place) noexcept {
  try {
    ncclComm_t comm = enter();
    const ncclResult_t result =
        comm == nullptr ? ncclInvalidUsage
                        : GRADWIRE_NCCL_REAL(ncclCommSplit)(comm, static_cast<int>(node), place, &made_, nullptr);
    leave();
    return result == ncclSuccess;
  } catch (const Error&) {  // the job has ended it
    return false;
  }
}

void ChildCommunicator::settle_split(bool all) noexcept { adopt(all, &ChildCommunicator::node_); }

void ChildCommunicator::adopt(bool all, ncclComm_t ChildCommunicator::*place) noexcept {
  ncclComm_t made = std::exchange(made_, nullptr);
  if (made == nullptr) {
    return;
  }
  if (all) {
    const MutexLock lock(mutex_);
    if (!aborted_) {
      this->*place = std::exchange(made, nullptr);
    }
  }
  if (made != nullptr) {
    GRADWIRE_NCCL_REAL(ncclCommAbort)(made);  // a communicator that lacks ranks cannot be destroyed
  }
}

ncclComm_t ChildCommunicator::enter() {
  const MutexLock lock(mutex_);
  if (aborted_) {
    throw Error(ErrorCode::aborted, "the job ended the communicator");
  }
  ++inside_;
  return comm_;
}

void ChildCommunicator::leave() noexcept {
  const MutexLock lock(mutex_);
  --inside_;
  left_.notify_all();
}

// The abort frees the communicators, so it waits for calls and groups under way, unless they are stuck.
void ChildCommunicator::abort() noexcept {
  ncclComm_t comm = nullptr;
  ncclComm_t node = nullptr;
  {
    const MutexLock lock(mutex_);
    aborted_ = true;
    comm = std::exchange(comm_, nullptr);
    node = std::exchange(node_, nullptr);
    if (comm == nullptr) {
      return;
    }
    left_.wait_for(mutex_, kStuck, [this]() REQUIRES(mutex_) { return inside_ == 0; });
  }
  if (node != nullptr) {
    GRADWIRE_NCCL_REAL(ncclCommAbort)(node);
  }
  GRADWIRE_NCCL_REAL(ncclCommAbort)(comm);
}

}  // namespace gradwire::nccl_preload
