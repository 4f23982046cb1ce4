// What the drop-in knows about the job's communicators: how they were made, and, from the first collective on, their
// size and rank. Any thread may call; no NCCL function is called under the lock.
#pragma once

#include <nccl.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.hpp"
#include "drop_in/device_reducer.hpp"
#include "plugins/nccl_preload/device_path.hpp"

namespace gradwire::nccl_preload {

/// A process's place in a communicator.
struct RankInCommunicator {
  int size = 0;
  int rank = 0;
};

/// Made by the first collective on a communicator, removed by ncclCommFinalize, Revoke, Destroy or Abort.
struct CommunicatorState : RankInCommunicator {
  std::shared_ptr<drop_in::DeviceReducer> reducer = {};  // from the first reduction on, if there is a device path
  std::shared_ptr<std::atomic<bool>> ended = {};         // with a reducer; see Reserved
  std::shared_ptr<ChildCommunicator> child = {};         // likewise
  bool refused = false;                                  // the device refused to make a reducer
};

/// The factor by which a rank scales its values: a number, or a value of the sum's type that lies in device memory.
struct Factor {
  double value = 1;
  const void* device = nullptr;
};

struct KnownCommunicator {
  bool blocking = true;
  std::string name = {};                  // ncclConfig_t.commName
  bool shares = false;                    // ncclConfig_t.splitShare
  bool open = true;                       // false after Finalize or Revoke: no more collectives
  std::optional<Reserved> reserved = {};  // if there is a device path and are other ranks
  std::optional<CommunicatorState> state = {};
  /// The operations of ncclRedOpCreatePreMulSum; no value for types that are not compressed.
  std::map<int, std::optional<Factor>> scaled_sums = {};
};

/// The largest communicator that the process used: it says which process speaks for the job.
class LargestCommunicator {
 public:
  void note(RankInCommunicator used) {
    const MutexLock lock(mutex_);
    if (used.size > largest_.size || (used.size == largest_.size && used.rank < largest_.rank)) {
      largest_ = used;
    }
  }
  /// Size 0 and rank 0 before the first communicator.
  [[nodiscard]] RankInCommunicator get() const {
    const MutexLock lock(mutex_);
    return largest_;
  }

 private:
  mutable Mutex mutex_;
  RankInCommunicator largest_ GUARDED_BY(mutex_);
};

class KnownCommunicators {
 public:
  /// Replaces the entry of an earlier communicator at this address.
  void add(ncclComm_t comm, KnownCommunicator made);
  /// Returns a copy; no value for null and for communicators that the drop-in did not see being made.
  [[nodiscard]] std::optional<KnownCommunicator> find(ncclComm_t comm) const;
  void set_state(ncclComm_t comm, const CommunicatorState& state);
  /// Returns the reducers of all communicators that have one.
  [[nodiscard]] std::vector<std::shared_ptr<drop_in::DeviceReducer>> reducers() const;

  /// Frees the state, but keeps how the communicator was made, which its children need.
  void close(ncclComm_t comm);
  /// Removes the communicator's entry and returns it. To be called before NCCL frees the communicator, since another
  /// thread may then get a new one at the same address; if NCCL refuses, put_back() restores the entry.
  [[nodiscard]] std::optional<KnownCommunicator> take(ncclComm_t comm);
  void put_back(ncclComm_t comm, const KnownCommunicator& communicator);

  void add_scaled_sum(ncclComm_t comm, ncclRedOp_t op, std::optional<Factor> factor);
  void remove_scaled_sum(ncclComm_t comm, ncclRedOp_t op);

 private:
  mutable Mutex mutex_;
  std::unordered_map<ncclComm_t, KnownCommunicator> known_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::nccl_preload
