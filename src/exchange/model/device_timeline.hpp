// Predicts how long the work of a collective takes on GPUs: a host that enqueues one thing after the other, and queues
// of a device that run it in order, with events between them. It knows no executor: its caller states
// each operation. The defaults are those of an H100 and its host; docs/explanation/device-collectives.md names their
// sources.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "exchange/model/cost_model.hpp"

namespace gradwire::exchange {

/// How fast kernels run on one card.
struct CardCost {
  double bytes_per_second = 2.93e12;     // read and written; that of a large copy
  double tiles_at_once = 528;            // tiles of 4096 elements that run beside each other: a wave
  double wave_seconds = 4e-6;            // least time of a wave
  double least_kernel_seconds = 2.5e-6;  // of a kernel that has nothing to do
};

/// How long the host takes to enqueue something, in seconds.
struct EnqueueCost {
  double kernel = 3e-6;
  double group = 17.5e-6;   // of messages, or one call of NCCL
  double message = 0.3e-6;  // each send and each receive of a group
  double event = 0.7e-6;    // to record one, or to wait for one
};

/// One kernel that encodes, exchanges, sums and decodes over memory that all cards of a node can write to.
struct FusedCost {
  double start_seconds = 15.3e-6;         // its launch, and the two meetings of all cards
  double link_share = 0.88;               // the share of the link's usable rate that stores of a kernel reach
  double frame_bytes_per_second = 610e9;  // what is not hidden behind the link: first encoding, sum, last decoding
};

/// Cards in nodes, the same number in each. Rates are those that messages reach, not those of the hardware.
struct DeviceCluster {
  std::string name = {};
  int nodes = 1;
  int cards = 1;  // of a node
  CardCost card = {};
  EnqueueCost host = {};
  LinkCost inside = {};       // of a card, to the others of its node; latency: of a whole group
  LinkCost between = {};      // of a card, to other nodes; a node's is divided by its cards
  LinkCost nccl = {};         // NCCL's sum: its latency, and the rate of its 2 (ranks - 1) / ranks of the bytes
  LinkCost nccl_inside = {};  // of a card, by NCCL's reduce-scatter and all-gather inside a node
  bool peer_access = true;    // a card's kernels may write to the memory of the others of its node
  FusedCost fused = {};

  [[nodiscard]] int ranks() const noexcept { return nodes * cards; }
};

/// Returns the time of NCCL's own all-reduce of `bytes`, in seconds.
[[nodiscard]] double nccl_seconds(const DeviceCluster& cluster, double bytes) noexcept;
/// Returns the time of one kernel inside a node for frames of `frame_bytes`, the whole bucket's, in seconds.
[[nodiscard]] double fused_seconds(const DeviceCluster& cluster, double frame_bytes) noexcept;

class DeviceTimeline {
 public:
  enum class Queue : std::uint8_t { host, compute, messages, node };
  enum class Kind : std::uint8_t { kernel, group, event };
  /// A piece of work in a queue, in seconds from the start. The host's spans are the times in which it enqueues.
  struct Span {
    Queue queue;
    Kind kind;
    double begin;
    double end;
  };
  /// The numbers of operations that have been enqueued.
  struct Counts {
    std::uint64_t kernels = 0;
    std::uint64_t groups = 0;
    std::uint64_t sends = 0;
    std::uint64_t events = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };

  /// `cluster` must outlive it.
  explicit DeviceTimeline(const DeviceCluster& cluster) : cluster_(cluster) {}

  /// Adds a kernel over `tiles` tiles that reads and writes `bytes`.
  void kernel(double tiles, double bytes);
  /// Adds a kernel that takes `seconds`.
  void kernel_of(double seconds);
  /// Adds messages that travel together; bytes are those that this card sends. Their latency is that of the longest
  /// way.
  void group(std::uint64_t sends, std::uint64_t receives, double inside_bytes, double between_bytes);
  /// Adds NCCL's reduce-scatter or all-gather inside a node, in which this card sends `bytes`. It has a queue of its
  /// own.
  void collective_inside(double bytes);
  /// Records an event and returns when the queue's present work will have run.
  double record(Queue queue);
  /// Lets the queue's later work start after that moment.
  void wait(Queue queue, double moment);
  /// Adds an event of a queue that is not modelled: the caller's.
  void event();

  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }
  [[nodiscard]] const std::vector<Span>& spans() const noexcept { return spans_; }
  /// Returns the time until everything has run, host included.
  [[nodiscard]] double seconds() const noexcept;
  /// Returns the sum of the times of what ran in a queue.
  [[nodiscard]] double busy_seconds(Queue queue) const noexcept { return busy_[static_cast<std::size_t>(queue)]; }

 private:
  double& end_of(Queue queue) noexcept { return ends_[static_cast<std::size_t>(queue)]; }
  void enqueue(Kind kind, double seconds);
  void run(Queue queue, Kind kind, double seconds);

  const DeviceCluster& cluster_;
  Counts counts_;
  std::vector<Span> spans_;
  std::array<double, 4> ends_{};
  std::array<double, 4> busy_{};
};

}  // namespace gradwire::exchange
