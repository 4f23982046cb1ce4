// Sessions and collectives over NCCL. Needs the component `nccl`: target gradwire::nccl.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>

#include "gradwire/communicator.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/session.hpp"

namespace gradwire::nccl {

/// A session whose gradients are memory of the device that `comm` was made for. Every rank of `comm` calls it, and it
/// blocks until all have. It makes a communicator of its own with the same ranks, so `comm` may be destroyed
/// afterwards. NCCL requires that calls on several communicators of a device come in one order on all ranks: enqueue
/// the job's own calls on `stream`, or in the same order relative to this session's on every rank. `stream` is the one
/// with the caller's work, of the same device (null: the default stream); it stays the caller's and must outlive the
/// session. ready() orders a bucket behind the work that is on `stream` then, and work enqueued on `stream` after
/// finish() comes behind the results. The host waits for the device only in wait(), in the first step, where ranks
/// agree on the plan, in save() and load(), where steps with NaN are skipped, and under codec = "auto" in finish() of
/// every 64th step and of steps that try a codec; docs/how-to/gpu.md lists these calls. Errors of enqueued work (a
/// frame that arrived damaged, NCCL's own, a step that does not end within the timeout) are thrown by a later call, and
/// only there: no timeout covers a host that waits for `stream` itself. A graph that captured a step must be destroyed
/// before the session is. docs/how-to/gpu.md says more. `options.threading` is ignored: any thread may call, one at a
/// time communicates. Error(unsupported) without GPU or driver, with CUDA's text; Error(invalid_argument) for a null
/// communicator, and from CUDA 12.8 on for a stream of another device; Error(transport) with NCCL's text.
/// Error(unsupported) also for what no session over device memory can do, here measure_error and checksum = true, in
/// later calls sync modes other than `step`, tables, checkpoint(), restore() and link(). Under codec = "auto" steps
/// begin with NCCL's own sums, and take a codec of `allow` once it was measured to make them shorter. Under algorithm =
/// "hierarchical" NCCL sums inside nodes, in an order of its own, which deterministic = true refuses with
/// Error(invalid_argument); a node is what the policy says, else a host. docs/reference/support.md lists what works
/// where.
[[nodiscard]] Session make_session(ncclComm_t comm, cudaStream_t stream, Policy policy, SessionOptions options = {});

/// All-reduces with codecs over device memory, without a session: one call, one result, nothing that blocks the host.
/// Every rank makes the same calls in the same order; one thread at a time. Results are bit-identical on every rank. On
/// any error the communicator is dead.
class Communicator {
 public:
  /// As make_session(). `timeout` of the options: for what blocks. Error(unsupported) for checksum = true.
  Communicator(ncclComm_t comm, cudaStream_t stream, CommunicatorOptions options = {});
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  /// Waits until the device has done all enqueued work.
  ~Communicator();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world_size() const noexcept;

  /// Enqueues the reduction of `input` over all ranks into `output` (same count and dtype; may be the same memory, must
  /// not overlap otherwise) on the stream. Both are memory of the device and must stay valid until it is done. The
  /// statistics hold bytes and frames, no times.
  /// `options.feedback` must be null: Error(unsupported); use a session. Error(unsupported), too, for the algorithm
  /// hierarchical. Without `options.chunk_bytes` a size that suits devices is used.
  /// Throws errors of earlier calls: see make_session().
  Statistics all_reduce(ConstView input, View output, const CallOptions& options = {});
  Statistics all_reduce(View in_place, const CallOptions& options = {}) {
    return all_reduce(in_place, in_place, options);
  }
  /// Allocates the memory that such a call needs, so that it can be captured into a graph; each replay counts as a
  /// call.
  void reserve(std::uint64_t count, DType dtype, const CallOptions& options = {});
  /// Blocks until the device has done all enqueued work; throws its errors.
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// As make_session().
[[nodiscard]] inline Communicator make_communicator(ncclComm_t comm, cudaStream_t stream,
                                                    CommunicatorOptions options = {}) {
  return {comm, stream, options};
}

}  // namespace gradwire::nccl
