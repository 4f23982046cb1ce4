// Runs schedules over a StreamBackend: everything is enqueued, nothing blocks, nothing is read back, so that a whole
// collective can be captured into a graph. Lanes are pipelined: the first messages of lane i travel in one group with
// the second messages of lane i-1, while lane i+1 is encoded. At most three lanes have memory at any size of the
// tensors, or five where a library sums inside nodes.
//
//   compute          encode 0 | encode 1 | reduce 0 | encode 2 | reduce 1, decode 0 | ...
//   communication               first 0             | first 1 + second 0            | first 2 + second 1 | ...
//
// A library's sums and gathers inside a node have a queue of their own: the sum of lane i+1 runs beside the messages of
// lane i, which use other links.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/resolved_call.hpp"
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

/// The data and options of one schedule, all in device memory and not owned. It must stay valid until the enqueued work
/// has run; a captured graph keeps pointers and `weight` as they were.
struct StreamTask {
  // Elements of `dtype`; input and output may be the same. Input data null: zeros. The output of a reduce-scatter and
  // the input of an all-gather are this rank's segment; all others are the whole bucket.
  DeviceRange<const void> input;
  DeviceRange<void> output;
  // Tensors that lie apart take the place of an input or output whose data is null. They are those of the whole bucket,
  // and are used only where pieces_of_call() says so.
  kernels::PieceTable input_pieces = {};
  kernels::PieceTable output_pieces = {};
  std::uint64_t count = 0;  // elements of the bucket
  DType dtype = DType::f32;
  ResolvedCall call;
  Reduction reduction = Reduction::sum;
  double weight = 1.0;
  // This rank's input has this factor in a sum without weights; residuals are in units of factor x g. If the pointer is
  // not null, the factor is in device memory, and read when kernels run.
  double factor = 1.0;
  const double* device_factor = nullptr;
  std::uint32_t bucket = 0;
  const std::uint32_t* step = nullptr;      // read when kernels run
  kernels::DeviceStatus* status = nullptr;  // sticky words
  std::uint32_t* nonfinite = nullptr;       // see kernels::CallFields
  // Residuals; data is null where none are held. At a site whose residuals this call keeps they must cover all elements
  // that it encodes there; all others are folded in and are zero afterwards. Local ones are in units of w x g, owner
  // ones in units of the result.
  DeviceRange<float> local_residual;
  DeviceRange<float> owner_residual;
  // Where call.node_sums: residuals of this rank's parts (call.residuals.parts), one behind the other; those of the
  // elements that it owns are in units of the result, the others in units of w x g.
  float* node_residual = nullptr;
  // Where call.preconditioned: the powers that StreamBackend::measure_scale() computed from the bucket's scale.
  DeviceRange<const std::uint8_t> powers = {};
  std::uint8_t terms = 0;                        // see Task
  std::shared_ptr<const Tiers> tiers = nullptr;  // if nodes are known: bytes inside and between them are counted apart
  bool in_windows = false;                       // one kernel may make it, if the executor has windows
  std::string name;                              // for messages: "bucket 3 (rule 2)"
};

/// The longest chunk of devices: a sixteenth more than the codes of 4 Mi elements by int8, for their scales and the
/// header.
inline constexpr std::uint64_t kMostChunkBytes = (4ULL << 20) / 16 * 17;
/// The chunks of devices, unless the caller asked for a size. A shard is one chunk of up to 4.25 MiB, so that a call
/// is one lane as long as the frames of all ranks have at most 136 MiB together: a lane costs launches and a group at
/// either end, and 4 MiB take several times as long on a wire. In worlds beyond 32 ranks chunks are smaller, but at
/// least 256 KiB, which bounds the memory of a lane. What was asked for is taken up to 2 GiB for all ranks together.
[[nodiscard]] ChunkSize stream_chunks(int world_size, std::optional<std::uint64_t> asked = std::nullopt) noexcept;

/// The sum of a device's own library, which has all dtypes and sizes.
inline constexpr NativeSum kStreamNativeSum{.f32 = true, .f64 = true, .half = true};

/// One collective, which may be enqueued in part.
class StreamExecution {
 public:
  /// Returns whether all of it is enqueued.
  [[nodiscard]] bool enqueued() const noexcept { return lanes_left_ == 0; }
  /// They are complete once all is enqueued. Times and nonfinite_frames stay 0 (DeviceStatus says whether there was NaN
  /// or Inf).
  [[nodiscard]] const Statistics& statistics() const noexcept { return statistics_; }

 private:
  friend class StreamExecutor;
  friend class StreamLane;
  // Counts sent bytes and the elements that they stand for. `peer`: see Tiers::count_sent().
  void count_sent(std::uint64_t bytes, std::uint64_t elements, int rank, int peer);

  Schedule schedule_;
  std::unique_ptr<StreamTask> task_;
  std::uint64_t lanes_left_ = 0;
  std::uint32_t sequence_ = 0;
  double* totals_ = nullptr;  // device memory: sum of weights, its inverse, own share; null where weights are equal
  Statistics statistics_;
};

/// One enqueued operation, reported in order, for tests that prove pipelining.
struct StreamTrace {
  enum class Kind : std::uint8_t { instruction, group_begin, group_end, wait };
  Kind kind = Kind::instruction;
  Opcode opcode = Opcode::encode;  // of an instruction
  std::uint32_t sequence = 0;
  std::uint64_t lane = 0;
  int round = 0;  // the instruction's round of computation or of communication
  int peer = -1;
};

struct StreamExecutorOptions {
  std::function<void(const StreamTrace&)> trace = {};
};

class Joint;
class StreamLane;
class WindowCalls;

/// Executes the collectives of one rank. One thread at a time may use it. Every rank makes the same calls in the same
/// order.
class StreamExecutor {
 public:
  /// `backend` must outlive it.
  explicit StreamExecutor(StreamBackend& backend, StreamExecutorOptions options = {});
  ~StreamExecutor();
  StreamExecutor(const StreamExecutor&) = delete;
  StreamExecutor& operator=(const StreamExecutor&) = delete;

  /// Calls that `windows` takes are made by it from now on. It must outlive this; null: none are.
  void use_windows(const WindowCalls* windows) noexcept { windows_ = windows; }
  [[nodiscard]] const WindowCalls* windows() const noexcept { return windows_; }

  /// Enqueues a collective without its last rounds, which share groups with the first rounds of the next collective.
  std::shared_ptr<const StreamExecution> start(Schedule schedule, StreamTask task);
  /// Describes one collective of several that start together.
  struct Call {
    Schedule schedule;
    StreamTask task;
  };
  /// Whether the collective can be made together with others: of one lane, two_shot by one lossy codec without topk,
  /// without weights or a scale, and with elements for every rank. It is the same on every rank.
  [[nodiscard]] bool joins(const Schedule& schedule, const StreamTask& task) const;
  /// Starts collectives that join and have the same codec, as one: their jobs of a kind are one launch, and all frames
  /// from one rank to another are one message. Frames and results are those of single calls. All ranks must make the
  /// same calls together, so these must be chosen by what all know.
  std::vector<std::shared_ptr<const StreamExecution>> start(std::vector<Call> calls);
  /// Enqueues the rest of all started collectives. Later work on the compute queue comes behind them.
  void finish();
  /// Calls start() and finish().
  std::shared_ptr<const StreamExecution> run(Schedule schedule, StreamTask task);
  // Any error ends the executor: it may have enqueued half a collective, so the caller must abort the communicator.
  // Later calls throw Error(aborted). Memory that was acquired then stays acquired, since communication may still touch
  // it.

 private:
  friend class StreamLane;
  using Queue = StreamBackend::Queue;

  using Event = StreamBackend::Event;
  /// Holds, for each queue of messages, the number of a group.
  using Groups = std::array<std::uint64_t, 2>;
  static constexpr std::size_t kMessages = 0;  // Queue::communication
  static constexpr std::size_t kNode = 1;      // Queue::node
  static constexpr std::array<Queue, 2> kQueues{Queue::communication, Queue::node};
  /// Marks a place behind a group of a queue.
  struct Mark {
    std::uint64_t group;
    std::uint64_t known;  // of the node's queue: the number of groups of messages for which it has waited
    Event event;
  };
  struct MessageQueue {
    std::uint64_t groups = 0;  // number of groups enqueued so far
    std::uint64_t waited = 0;  // number of groups for which the compute queue has waited
    bool behind = true;        // the compute queue got work for it, for which it has not waited
    std::deque<Mark> marks;    // of its last groups, oldest first
  };
  struct Parked {
    std::byte* memory;
    Groups last;  // the last groups that use it
  };

  [[nodiscard]] std::shared_ptr<StreamExecution> open(Schedule schedule, StreamTask task);
  void turn(std::vector<std::unique_ptr<StreamLane>> fresh);
  void launch_joints();
  void start_in_windows(StreamExecution& execution);
  void drain();
  void exchange(std::span<StreamLane* const> lanes);
  void use_library(StreamLane& lane);
  [[nodiscard]] const Mark& mark_behind(std::size_t queue, std::uint64_t group);
  // Makes the compute queue wait for these groups, and releases parked memory that no group uses any more.
  void catch_up(const Groups& needed);
  // Makes a queue of messages wait for the present work of the compute queue, if it may need that.
  void follow_compute(std::size_t queue);
  // Says that the compute queue got work that messages need.
  void computed() noexcept { messages_[kMessages].behind = messages_[kNode].behind = true; }
  static void raise(Groups& last, const Groups& groups) noexcept {
    for (std::size_t queue = 0; queue < last.size(); ++queue) {
      last[queue] = groups[queue] > last[queue] ? groups[queue] : last[queue];
    }
  }
  [[nodiscard]] bool waited_for(const Groups& last) const noexcept {
    return last[kMessages] <= messages_[kMessages].waited && last[kNode] <= messages_[kNode].waited;
  }
  void trace(const StreamTrace& event) const;
  template <class Body>
  void guarded(Body&& body);
  template <class Body>
  void group(std::size_t queue, Body&& body);

  StreamBackend& backend_;
  StreamExecutorOptions options_;
  std::deque<std::unique_ptr<StreamLane>> lanes_;  // oldest first
  std::vector<std::shared_ptr<Joint>> joints_;     // of lanes in flight
  std::vector<Parked> parked_;                     // memory to release once the compute queue has waited for groups
  std::array<MessageQueue, 2> messages_;
  std::uint64_t known_in_node_ = 0;  // number of groups of messages for which the node's queue has waited
  bool in_group_ = false;
  std::uint32_t next_sequence_ = 0;
  std::optional<Error> failure_;
  const WindowCalls* windows_ = nullptr;
};

}  // namespace gradwire::exchange
