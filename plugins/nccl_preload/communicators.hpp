// What the drop-in knows of the job's communicators: how they were made, and, from the first collective on, their size
// and rank. Any thread; no NCCL function is called under the lock.
#pragma once

#include <nccl.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/mutex.hpp"
#include "drop_in/device_member.hpp"

namespace gradwire::nccl_preload {

/// A process's place in a communicator.
struct Seat {
  int size = 0;
  int rank = 0;
};

/// Made by the first collective on a communicator, gone with ncclCommFinalize, Revoke, Destroy or Abort.
struct CommunicatorState : Seat {
  std::shared_ptr<drop_in::DeviceMember> member = {};  // from the first reduction on, where there is a device path
  std::shared_ptr<std::atomic<bool>> ended = {};       // for the member: NCCL is not to be asked any more
  bool refused = false;                                // the device has no member for it
};

struct Communicator {
  bool blocking = true;
  bool open = true;  // false after Finalize or Revoke: no more collectives
  std::optional<CommunicatorState> state = {};
  std::set<int> scaled_sums = {};  // operations of ncclRedOpCreatePreMulSum
};

/// The largest communicator that the process used: it says which process speaks for the job.
class LargestCommunicator {
 public:
  void note(Seat used) {
    const MutexLock lock(mutex_);
    if (used.size > largest_.size || (used.size == largest_.size && used.rank < largest_.rank)) {
      largest_ = used;
    }
  }
  /// Size and rank 0 before the first.
  [[nodiscard]] Seat get() const {
    const MutexLock lock(mutex_);
    return largest_;
  }

 private:
  mutable Mutex mutex_;
  Seat largest_ GUARDED_BY(mutex_);
};

class Communicators {
 public:
  /// Replaces what an earlier communicator at this address left.
  void add(ncclComm_t comm, bool blocking);
  /// A copy; nothing for null and for communicators whose making the drop-in did not see.
  [[nodiscard]] std::optional<Communicator> find(ncclComm_t comm) const;
  void set_state(ncclComm_t comm, const CommunicatorState& state);

  /// Frees the state; how the communicator was made stays known, for its children.
  void close(ncclComm_t comm);
  /// Forgets the communicator and returns what it was. To be called before NCCL frees it, since another thread may then
  /// get a new one at the same address; put_back where NCCL refuses.
  [[nodiscard]] std::optional<Communicator> take(ncclComm_t comm);
  void put_back(ncclComm_t comm, const Communicator& communicator);

  void add_scaled_sum(ncclComm_t comm, ncclRedOp_t op);
  void remove_scaled_sum(ncclComm_t comm, ncclRedOp_t op);

 private:
  mutable Mutex mutex_;
  std::unordered_map<ncclComm_t, Communicator> known_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::nccl_preload
