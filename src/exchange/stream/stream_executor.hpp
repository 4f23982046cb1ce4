// Runs schedules over a StreamBackend: everything is enqueued, nothing blocks, nothing is read back, so that a whole
// collective can be captured into a graph. Lanes are pipelined: what lane i sends first travels in one group with what
// lane i-1 sends second, while lane i+1 is encoded. At most three lanes have memory, whatever the size of the tensors.
//
//   compute          encode 0 | encode 1 | reduce 0 | encode 2 | reduce 1, decode 0 | ...
//   communication               first 0             | first 1 + second 0            | first 2 + second 1 | ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exchange/reduction.hpp"
#include "exchange/schedule.hpp"
#include "exchange/stream/stream_backend.hpp"
#include "gradwire/error.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/statistics.hpp"
#include "kernels/device/jobs.hpp"

namespace gradwire::exchange {

/// Elements [first, first + count) of a bucket, contiguous in device memory.
template <class T>
struct DeviceRange {
  T* data = nullptr;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// What a schedule works on, all in device memory and not owned. It must stay until what was enqueued has run; a
/// captured graph keeps pointers and `weight` as they were.
struct StreamTask {
  // Elements of `dtype`, in place or apart. Input data null: zeros. A reduce-scatter has its own segment as output, an
  // all-gather as input; all else the whole bucket.
  DeviceRange<const void> input;
  DeviceRange<void> output;
  std::uint64_t count = 0;  // elements of the bucket
  DType dtype = DType::f32;
  ResolvedCall call;
  Reduction reduction = Reduction::sum;
  double weight = 1.0;
  std::uint32_t bucket = 0;
  const std::uint32_t* step = nullptr;      // read when kernels run
  kernels::DeviceStatus* status = nullptr;  // sticky words
  // Residuals, data null where none are held. A site that this call keeps must cover what it encodes there; whatever
  // else is given is folded in and zero afterwards. Local ones are in units of w x g, owner ones in those of the
  // result.
  DeviceRange<float> local_residual;
  DeviceRange<float> owner_residual;
  // Where call.preconditioned: what StreamBackend::measure_scale() has made of the bucket's scale.
  DeviceRange<const std::uint8_t> powers = {};
  std::uint8_t terms = 0;  // as in Task
  std::string name;        // for messages: "bucket 3 (rule 2)"
};

/// Bytes of a chunk on the wire for devices: 4 MiB take 80 us at 50 GB/s, several times what a group and its kernels
/// cost to launch, and a GPU is filled by the 1024 tiles or more that they hold. In large worlds less, since a lane has
/// about four chunks a rank in memory: 32 MiB over all ranks, but at least 256 KiB.
[[nodiscard]] std::uint64_t stream_chunk_bytes(int world_size) noexcept;

/// The sum of devices' libraries, for all dtypes and sizes.
inline constexpr NativeSum kStreamNativeSum{.f32 = true, .f64 = true, .half = true};

/// One collective, as enqueued so far.
class StreamExecution {
 public:
  /// Whether all of it is enqueued.
  [[nodiscard]] bool enqueued() const noexcept { return lanes_left_ == 0; }
  /// Known when enqueued; no times, and nonfinite_frames stays 0 (DeviceStatus says whether there was NaN or Inf).
  [[nodiscard]] const Statistics& statistics() const noexcept { return statistics_; }

 private:
  friend class StreamExecutor;
  friend class StreamLane;
  Schedule schedule_;
  std::unique_ptr<StreamTask> task_;
  std::uint64_t lanes_left_ = 0;
  std::uint32_t sequence_ = 0;
  double* totals_ = nullptr;  // device: sum of weights, its inverse, own share; null where weights are equal
  Statistics statistics_;
};

/// What was enqueued, in order; for tests that prove pipelining.
struct StreamTrace {
  enum class What : std::uint8_t { step, group_begin, group_end, wait };
  What what = What::step;
  StepKind kind = StepKind::encode;  // of a step
  std::uint32_t sequence = 0;
  std::uint64_t lane = 0;
  int round = 0;  // of a step: of computation, or of communication
  int peer = -1;
};

struct StreamExecutorOptions {
  std::function<void(const StreamTrace&)> trace = {};
};

class StreamLane;

/// One rank's. One thread at a time. Every rank makes the same calls in the same order.
class StreamExecutor {
 public:
  /// `backend` must outlive it.
  explicit StreamExecutor(StreamBackend& backend, StreamExecutorOptions options = {});
  ~StreamExecutor();
  StreamExecutor(const StreamExecutor&) = delete;
  StreamExecutor& operator=(const StreamExecutor&) = delete;

  /// Enqueues a collective but for its last rounds, which share groups with the next one's first.
  std::shared_ptr<const StreamExecution> start(Schedule schedule, StreamTask task);
  /// Enqueues what is left of all that was started. Afterwards work on the compute queue comes after all of it.
  void finish();
  /// start() and finish().
  std::shared_ptr<const StreamExecution> run(Schedule schedule, StreamTask task);
  // Any error ends the executor: it may have enqueued half a collective, so whoever catches it must abort the
  // communicator. Later calls throw Error(aborted). Memory that was acquired then stays acquired: communication may
  // still touch it.

 private:
  friend class StreamLane;
  using Queue = StreamBackend::Queue;

  void turn(std::unique_ptr<StreamLane> fresh);
  void catch_up();
  void communicate();
  void trace(const StreamTrace& event) const;
  template <class Body>
  void guarded(Body&& body);
  template <class Body>
  void group(Body&& body);

  StreamBackend& backend_;
  StreamExecutorOptions options_;
  std::deque<std::unique_ptr<StreamLane>> lanes_;  // oldest first
  std::vector<std::byte*> parked_;                 // to be released when the compute queue has waited for groups
  std::uint64_t groups_ = 0;                       // enqueued so far
  std::uint64_t waited_ = 0;                       // of which the compute queue has waited for the first so many
  StreamBackend::Event last_group_ = 0;
  bool in_group_ = false;
  std::uint32_t next_sequence_ = 0;
  std::optional<Error> failure_;
};

}  // namespace gradwire::exchange
