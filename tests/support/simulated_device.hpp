// Simulates devices on host memory for the stream executor: each rank has queues of deferred operations, which one
// thread runs in a random order that queues and events allow. Codecs are the host's. Mistakes that hardware would hide
// are errors: queues that use memory (also the caller's, and residuals) without an event between them, groups that do
// not fit together, and queues that wait for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "exchange/stream/stream_backend.hpp"
#include "exchange/tiers.hpp"
#include "tests/support/access_log.hpp"
#include "tests/support/host_kernels.hpp"
#include "tests/support/node_reference.hpp"

namespace gradwire::test {

class SimulatedWorld;

/// One message of a group, or a collective of the library: a native sum, or a sum or gather inside a node.
struct SimulatedMessage {
  enum class Kind : std::uint8_t { send, receive, all_reduce, node_sum, node_gather };
  Kind kind = Kind::send;
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;  // of a part, for a sum or gather inside a node
  int peer = -1;
  DType dtype = DType::f32;
  const std::byte* from = nullptr;  // of a sum inside a node
  std::uint64_t rest = 0;           // bytes that the last part has more

  [[nodiscard]] bool in_node() const noexcept { return kind == Kind::node_sum || kind == Kind::node_gather; }
};

/// The order in which the library adds the inputs of a node's ranks.
enum class NodeOrder : std::uint8_t { ascending, descending, tree };

/// Returns the name of a queue, for texts.
[[nodiscard]] std::string name_of(exchange::StreamBackend::Queue queue);
[[nodiscard]] std::string describe(const std::vector<SimulatedMessage>& messages);

class SimulatedDevice final : public HostKernels {
 public:
  SimulatedDevice(SimulatedWorld& world, int rank, int world_size);

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return world_size_; }
  /// Released memory is given out again at once, newest first.
  [[nodiscard]] std::byte* acquire(std::size_t bytes) override;
  void release(std::byte* memory) noexcept override;
  [[nodiscard]] Event record(Queue queue) override;
  void wait(Queue queue, Event event) override;
  void begin_group() override;
  void send(std::span<const std::byte> bytes, int peer) override;
  void receive(std::span<std::byte> bytes, int peer) override;
  void all_reduce(void* values, DType dtype, std::uint64_t count) override;
  void sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest) override;
  void gather_in_node(void* all, std::uint64_t bytes) override;
  void end_group() override;

  /// Return the largest number of bytes that were acquired and not released, the current number, and the blocks.
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept { return peak_bytes_; }
  [[nodiscard]] std::uint64_t live_bytes() const noexcept { return live_bytes_; }
  [[nodiscard]] bool in_group() const noexcept { return in_group_; }
  [[nodiscard]] std::uint64_t groups() const noexcept { return groups_; }
  [[nodiscard]] std::uint64_t waits() const noexcept { return waits_; }

  // Faults that a test injects, to test the checks themselves.
  struct Faults {
    std::uint64_t drop_wait = ~std::uint64_t{0};      // number of the wait() that does nothing
    std::uint64_t early_release = ~std::uint64_t{0};  // number of the block that is released as soon as it is acquired
    std::uint64_t fail_acquire = ~std::uint64_t{0};   // number of the acquire() that finds no memory
    std::uint64_t swap_group = ~std::uint64_t{0};     // number of the group that is swapped with the next one
  };
  Faults faults;
  bool checks_races = true;

 private:
  friend class SimulatedWorld;
  enum class Kind : std::uint8_t { work, record, wait, group };
  struct Operation {
    Kind kind = Kind::work;
    std::string what;
    std::function<void()> work = {};
    Event event = 0;
    std::vector<SimulatedMessage> messages = {};
  };
  struct Block {
    std::vector<std::byte> bytes;
    std::byte* begin = nullptr;
    std::size_t size = 0;
    bool live = false;
  };
  struct Recorded {
    Queue queue;
    AccessLog::Clock clock;
    std::uint64_t ordinal;  // index within its queue
  };

  void compute(const char* what, const std::vector<Access>& accesses, std::function<void()> work) override;
  void enqueue(Queue queue, Operation operation, const std::vector<Access>& accesses = {});
  [[nodiscard]] std::deque<Operation>& queue(Queue queue) { return queues_[index(queue)]; }
  [[nodiscard]] Block* block_of(const void* memory);
  void poison(const Block& block, std::byte value, const char* what);
  [[nodiscard]] static std::size_t index(Queue queue) { return static_cast<std::size_t>(queue); }

  SimulatedWorld& world_;
  int rank_;
  int world_size_;
  static constexpr std::size_t kQueues = 3;
  std::deque<Operation> queues_[kQueues];
  AccessLog log_{{"compute", "communication", "node"}};
  std::vector<Recorded> events_;
  std::vector<bool> reached_;
  std::uint64_t recorded_[kQueues] = {};
  std::map<const std::byte*, std::unique_ptr<Block>> blocks_;
  std::map<std::size_t, std::vector<Block*>> free_;
  std::vector<SimulatedMessage> group_;
  std::vector<Access> group_accesses_;
  bool in_group_ = false;
  std::optional<Operation> held_back_;
  std::uint64_t waits_ = 0;
  std::uint64_t acquired_ = 0;
  std::uint64_t groups_ = 0;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
};

class SimulatedWorld {
 public:
  SimulatedWorld(int world_size, unsigned seed);

  /// Puts the ranks on nodes, inside which devices then sum, in this order, and gather.
  void set_nodes(exchange::Tiers nodes, NodeOrder order) {
    nodes_ = std::move(nodes);
    order_ = order;
  }
  /// The nodes' sums of each rank's parts, as the library gave them, by rank and in the order of its calls.
  std::vector<std::vector<NodeSum>> node_sums;

  [[nodiscard]] SimulatedDevice& device(int rank) { return *devices_.at(static_cast<std::size_t>(rank)); }
  /// Runs everything that is enqueued. Error(internal) shows all queues if nothing can run any more, or if groups with
  /// messages for each other do not fit.
  void run();

 private:
  friend class SimulatedDevice;
  using Queue = exchange::StreamBackend::Queue;
  [[nodiscard]] bool runnable(SimulatedDevice& device, Queue queue);
  void step(SimulatedDevice& device, Queue queue);
  // Returns the ranks whose groups must run together with this rank's; empty while one of the groups has not been
  // enqueued.
  [[nodiscard]] std::vector<int> partners(int rank, Queue queue);
  [[nodiscard]] std::vector<SimulatedMessage> messages(int rank, int peer, SimulatedMessage::Kind kind);
  void run_group(const std::vector<int>& ranks, Queue queue);
  void run_all_reduce(const std::vector<int>& ranks);
  [[nodiscard]] std::vector<int> neighbours(int rank);
  void run_in_node(const std::vector<int>& ranks);
  void run_node_sum(const std::vector<int>& ranks, const std::vector<SimulatedMessage>& parts);
  [[nodiscard]] std::string state();

  std::vector<std::unique_ptr<SimulatedDevice>> devices_;
  std::mt19937 random_;
  exchange::Tiers nodes_;
  NodeOrder order_ = NodeOrder::ascending;
  std::string late_fault_;  // a fault in release(), which may not throw
};

}  // namespace gradwire::test
