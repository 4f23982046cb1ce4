// The job's calls that return a request, on one communicator, where the ranks agreed to compress them. A thread makes
// them one after another, in the same way as blocking calls. Calls that pass in the end, which exist on MPI_COMM_WORLD
// only, are MPI's own calls on the private communicator of the same ranks, since the job's communicator has other calls
// meanwhile. The job holds generalized requests, which every call that completes requests knows.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drop_in/call_queue.hpp"
#include "plugins/mpi_preload/reduce.hpp"

namespace gradwire::mpi_preload {

class Requests {
 public:
  /// Needs MPI_THREAD_MULTIPLE. The destructor waits for all requests.
  Requests(CommState& state, std::unique_ptr<drop_in::CallQueue> queue) : state_(state), queue_(std::move(queue)) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  /// Returns at once, with a code of MPI. The buffers belong to the request until it is complete.
  [[nodiscard]] int post(const Reduce& call, const choice::Call& described, MPI_Request* request);
  /// Waits until all requests are complete, as other collective calls that may be compressed must.
  void drain() { queue_->drain(); }
  /// Whether a request was ever posted in this process.
  [[nodiscard]] static bool any() noexcept { return any_.load(std::memory_order_relaxed); }

 private:
  struct Posted;
  static int query(void* posted, MPI_Status* status) noexcept;
  static int release(void* posted) noexcept;
  static int cancel(void* posted, int complete) noexcept;

  void make(Posted& posted) noexcept;
  void route_and_make(Posted& posted) REQUIRES(state_.mutex);
  [[nodiscard]] int forward(const Reduce& call) const;

  inline static std::atomic<bool> any_ = false;
  CommState& state_;
  std::unique_ptr<drop_in::CallQueue> queue_;
};

}  // namespace gradwire::mpi_preload
