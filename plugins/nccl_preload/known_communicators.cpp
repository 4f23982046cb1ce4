#include "plugins/nccl_preload/known_communicators.hpp"

#include <utility>

namespace gradwire::nccl_preload {

void KnownCommunicators::add(ncclComm_t comm, KnownCommunicator made) {
  const MutexLock lock(mutex_);
  known_.insert_or_assign(comm, std::move(made));
}

std::optional<KnownCommunicator> KnownCommunicators::find(ncclComm_t comm) const {
  const MutexLock lock(mutex_);
  const auto it = known_.find(comm);
  return it == known_.end() ? std::nullopt : std::optional(it->second);
}

void KnownCommunicators::set_state(ncclComm_t comm, const CommunicatorState& state) {
  const MutexLock lock(mutex_);
  if (const auto it = known_.find(comm); it != known_.end() && it->second.open) {
    it->second.state = state;
  }
}

std::vector<std::shared_ptr<drop_in::DeviceReducer>> KnownCommunicators::reducers() const {
  std::vector<std::shared_ptr<drop_in::DeviceReducer>> all;
  const MutexLock lock(mutex_);
  for (const auto& [comm, known] : known_) {
    if (known.state && known.state->reducer) {
      all.push_back(known.state->reducer);
    }
  }
  return all;
}

void KnownCommunicators::close(ncclComm_t comm) {
  std::optional<CommunicatorState> old;  // these are freed after the lock: freeing may wait for the device
  std::optional<Reserved> reserved;
  const MutexLock lock(mutex_);
  if (const auto it = known_.find(comm); it != known_.end()) {
    it->second.open = false;
    old.swap(it->second.state);
    reserved.swap(it->second.reserved);
    it->second.scaled_sums.clear();
  }
}

std::optional<KnownCommunicator> KnownCommunicators::take(ncclComm_t comm) {
  const MutexLock lock(mutex_);
  auto node = known_.extract(comm);
  return node.empty() ? std::nullopt : std::optional(std::move(node.mapped()));
}

void KnownCommunicators::put_back(ncclComm_t comm, const KnownCommunicator& communicator) {
  const MutexLock lock(mutex_);
  known_.try_emplace(comm, communicator);
}

void KnownCommunicators::add_scaled_sum(ncclComm_t comm, ncclRedOp_t op, std::optional<Factor> factor) {
  const MutexLock lock(mutex_);
  if (const auto it = known_.find(comm); it != known_.end()) {
    it->second.scaled_sums.insert_or_assign(static_cast<int>(op), factor);
  }
}

void KnownCommunicators::remove_scaled_sum(ncclComm_t comm, ncclRedOp_t op) {
  const MutexLock lock(mutex_);
  if (const auto it = known_.find(comm); it != known_.end()) {
    it->second.scaled_sums.erase(static_cast<int>(op));
  }
}

}  // namespace gradwire::nccl_preload
