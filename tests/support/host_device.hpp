// Simulates a device on host memory for sessions: queues (the caller's stream, compute, communication, the node's) with
// events between them, which run only when a caller waits, in a random order among those that events allow. If two
// queues use the same memory with no event between them, the second use is an error when it is enqueued. Codecs are the
// host's, messages go over a transport, and ranks are threads. A captured step is a list that can be enqueued again.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/window_calls.hpp"
#include "gradwire/transport.hpp"
#include "tests/support/access_log.hpp"
#include "tests/support/host_kernels.hpp"
#include "tests/support/host_windows.hpp"

namespace gradwire::test {

class HostDevice final : public exchange::StreamDevice, private HostKernels {
 public:
  /// A captured step.
  struct Work {
    std::vector<std::function<void()>> operations;
    std::vector<Access> accesses;
  };

  /// `limit` is the size of the device's memory in bytes.
  explicit HostDevice(std::shared_ptr<Transport> transport, std::size_t limit = ~std::size_t{0},
                      std::size_t slab_bytes = std::size_t{1} << 16);
  /// Lets its library sum inside nodes; call it before a session is made.
  void let_sum_in_nodes() noexcept { sums_in_nodes_ = true; }
  ~HostDevice() override;

  /// Enqueues work on the caller's stream, with its accesses.
  void call(const char* what, const std::vector<Access>& accesses, std::function<void()> work);
  /// Runs all enqueued work, as cudaDeviceSynchronize would wait for it.
  void synchronize();
  /// Runs this many operations, or all that are enqueued.
  void run_some(std::size_t operations);
  /// Captures the caller's stream from here on.
  void begin_capture();
  [[nodiscard]] Work end_capture();
  /// Enqueues a captured step on the caller's stream.
  void replay(const Work& graph);

  // Members that a test reads, or uses to cause faults.
  std::uint64_t followed = 0;                // calls of follow_caller()
  std::uint64_t led = 0;                     // calls of lead_caller()
  std::uint64_t allocations = 0;             // slabs taken
  std::uint64_t gathers = 0;                 // gathers that were enqueued
  std::uint64_t computed = 0;                // operations that were enqueued on the compute queue
  std::uint64_t grouped = 0;                 // groups of messages that were enqueued
  std::uint64_t node_sums = 0;               // sums inside nodes that were enqueued
  std::chrono::microseconds sum_takes{0};    // time of the library's sum over all ranks, beside what it takes here
  std::chrono::microseconds group_takes{0};  // the same of a group of messages
  HostWindows in_node;
  std::set<const void*> foreign;                // memory of other owners
  std::optional<Error> asynchronous_error;      // error of the communicator
  bool damage_next_frame = false;               // damages the next received frame
  bool lets_pass = false;                       // waits for aborted messages return, as over a transport
  std::uint64_t drop_join = ~std::uint64_t{0};  // number of the follow_caller() or lead_caller() call that does nothing
  /// The device's memory, of which it is full where less than asked for is left.
  [[nodiscard]] memory::ArenaSource& memory() noexcept { return source_; }
  [[nodiscard]] std::size_t memory_left() const noexcept { return source_.left; }
  void set_memory_left(std::size_t bytes) noexcept { source_.left = bytes; }
  /// Returns the number of operations that are enqueued and have not run.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }

  [[nodiscard]] exchange::StreamBackend& backend() noexcept override { return *this; }
  [[nodiscard]] memory::Arena& arena() noexcept override { return arena_; }
  [[nodiscard]] std::string name() const override { return "host device over " + transport_->name(); }
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept override { return 0; }
  [[nodiscard]] bool sums_in_nodes() const noexcept override { return sums_in_nodes_; }
  [[nodiscard]] std::string open_windows(const memory::AllGather& all_gather,
                                         std::chrono::milliseconds timeout) override;
  [[nodiscard]] const exchange::WindowCalls* windows() const noexcept override { return window_calls_.get(); }
  void set_nodes(const exchange::Tiers& nodes) override { nodes_ = nodes; }
  [[nodiscard]] int enter() override;
  void leave(int previous) noexcept override;
  void follow_caller() override;
  void lead_caller() override;
  [[nodiscard]] bool capturing() override { return capturing_; }
  [[nodiscard]] Point mark() override;
  [[nodiscard]] bool reached(Point point) override;
  void wait(Point point, std::chrono::milliseconds timeout) override;
  void wait_alone(Point point, std::chrono::milliseconds timeout) override;
  void download(std::span<std::byte> to, const void* from, std::chrono::milliseconds timeout) override;
  void upload(void* to, std::span<const std::byte> from) override;
  void zero(void* data, std::size_t bytes) override;
  void load_kernels() override {}
  void advance(std::uint32_t* step) override;
  [[nodiscard]] kernels::DeviceStatus& status() noexcept override { return status_; }
  [[nodiscard]] std::uint32_t nonfinite_steps() noexcept override { return nonfinite_steps_; }
  void check(const void* data, const std::string& what) override;
  void poll() override;
  void abort(const Error& error) noexcept override;
  void end_messages(std::chrono::milliseconds timeout) override;

 private:
  class Source final : public memory::ArenaSource {
   public:
    Source(HostDevice& device, std::size_t limit) : left(limit), device_(device) {}
    [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
    void free(std::byte* slab) noexcept override;
    [[nodiscard]] std::string why() const override { return "the host device is full"; }

    std::size_t left;  // bytes

   private:
    HostDevice& device_;
    std::map<const std::byte*, std::size_t> taken_;  // bytes of slabs
  };
  struct Message {
    bool sends;
    std::byte* data;
    std::uint64_t bytes;
    int peer;
  };

  [[nodiscard]] int rank() const noexcept override { return transport_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return transport_->world_size(); }
  [[nodiscard]] std::byte* acquire(std::size_t bytes) override { return arena_.acquire(bytes); }
  void release(std::byte* memory) noexcept override { arena_.release(memory); }
  [[nodiscard]] Event record(Queue queue) override { return record_on(index(queue)); }
  void wait(Queue queue, Event event) override { wait_on(index(queue), event); }
  void compute(const char* what, const std::vector<Access>& accesses, std::function<void()> work) override;
  void gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) override;
  void all_reduce_windows(const kernels::WindowJob& job) override;
  void begin_group() override;
  void send(std::span<const std::byte> bytes, int peer) override;
  void receive(std::span<std::byte> bytes, int peer) override;
  void all_reduce(void* values, DType dtype, std::uint64_t count) override;
  void sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest) override;
  void gather_in_node(void* all, std::uint64_t bytes) override;
  void end_group() override;

  [[nodiscard]] static AccessLog new_log() { return AccessLog({"caller's", "compute", "communication", "node's"}); }
  [[nodiscard]] AccessLog& log() { return capturing_ ? graph_log_ : log_; }
  enum QueueIndex : std::size_t { kCaller, kCompute, kCommunication, kNode, kQueues };
  [[nodiscard]] static std::size_t index(Queue queue) {
    return queue == Queue::compute ? kCompute : queue == Queue::node ? kNode : kCommunication;
  }
  struct Item {
    std::function<void()> work = {};
    std::shared_ptr<bool> reaches = {};  // set for an event
    std::shared_ptr<const bool> waits_for = {};
  };
  struct Recorded {
    std::shared_ptr<bool> reached;
    AccessLog::Clock clock;
    bool captured;
  };

  // Records an event on any of the queues.
  [[nodiscard]] Event record_on(std::size_t queue);
  void wait_on(std::size_t queue, Event event);
  void push(std::size_t queue, const std::string& what, const std::vector<Access>& accesses,
            std::function<void()> work);
  void enqueue(std::size_t queue, Item item);
  void require_no_capture(const char* call) const;
  void run_until(Point end);
  void throw_if_aborted();
  void run_one();
  void exchange(const std::vector<Message>& messages);
  void exchange_now(const std::vector<Message>& messages);

  std::shared_ptr<Transport> transport_;
  kernels::WindowWords window_words_;
  std::unique_ptr<exchange::WindowCalls> window_calls_;
  Source source_;
  memory::Arena arena_;
  kernels::DeviceStatus status_;
  std::uint32_t nonfinite_steps_ = 0;
  std::array<std::deque<Item>, kQueues> queues_;
  std::size_t waiting_ = 0;
  Point enqueued_ = 0;  // on the compute queue
  Point done_ = 0;
  std::map<Point, AccessLog::Clock> marks_;
  std::vector<Recorded> events_;
  AccessLog log_ = new_log();
  std::minstd_rand random_;  // chooses the queue that goes on
  std::mutex aborting_;
  std::optional<Error> aborted_;  // the error of the transport below
  bool messages_over_ = false;
  bool capturing_ = false;
  std::vector<std::function<void()>> graph_;
  AccessLog graph_log_ = new_log();
  std::array<bool, kQueues> joined_{};  // the queue is part of the capture
  int entered_ = 0;
  bool sums_in_nodes_ = false;
  std::optional<exchange::Tiers> nodes_;
  std::vector<Message> group_;
  std::vector<Access> group_accesses_;
  std::map<std::pair<int, bool>, Tag> next_tag_;  // by peer and direction
};

}  // namespace gradwire::test
