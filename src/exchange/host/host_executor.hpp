// Runs schedules on the calling thread over a nonblocking transport. Several lanes are in flight at once, of one or of
// several collectives in the order in which they were started: while chunk k travels, chunk k+1 is encoded and chunk
// k-1 reduced. Memory is bounded by the window of lanes, which follows the link (window.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "codec/codec.hpp"
#include "codec/preconditioner.hpp"
#include "codec/tensor_list.hpp"
#include "exchange/residuals/residual_access.hpp"
#include "exchange/resolved_call.hpp"
#include "exchange/schedule.hpp"
#include "exchange/tiers.hpp"
#include "exchange/window.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/statistics.hpp"
#include "gradwire/transport.hpp"
#include "memory/buffer_pool.hpp"
#include "observe/event.hpp"
#include "observe/peer_waits.hpp"

namespace gradwire::exchange {

/// The data and options of one schedule. Everything that it refers to must outlive the execution.
struct Task {
  codec::TensorList tensors;
  ResolvedCall call;
  Reduction reduction = Reduction::sum;
  double weight = 1.0;
  std::uint32_t bucket = 0;
  std::uint32_t step = 0;
  ResidualAccess* residuals = nullptr;                       // where call.residuals.any
  std::optional<codec::Preconditioner> preconditioner = {};  // where call.preconditioned
  // wire::kTerm... of a call without an agreed plan, which ranks compare on the way. None: nothing to compare.
  std::optional<std::uint8_t> terms = {};
  bool waits = false;  // this rank's answer to native_ask
  std::string name;    // for messages: "bucket 3 (rule 2)"
};

/// One collective under way, and its outcome.
class Execution {
 public:
  [[nodiscard]] bool done() const noexcept { return done_; }
  /// Whether NaN or Inf is in the result; the same on every rank.
  [[nodiscard]] bool nonfinite() const noexcept { return nonfinite_; }
  [[nodiscard]] const Statistics& statistics() const noexcept { return statistics_; }

 private:
  friend class HostExecutor;
  friend class LaneRun;
  Schedule schedule_;
  std::unique_ptr<Task> task_;
  std::uint64_t next_lane_ = 0;
  std::uint64_t lanes_left_ = 0;
  std::uint32_t sequence_ = 0;
  double total_weight_ = 0;
  bool weights_known_ = true;
  bool done_ = false;
  bool nonfinite_ = false;
  std::chrono::steady_clock::time_point started_;
  std::uint64_t entered_ = 0;  // observe::ticks()
  Statistics statistics_;
};

/// An event of an execution, reported at once and in order, for tests that prove pipelining or act meanwhile.
struct TraceEvent {
  Opcode opcode;
  std::uint32_t sequence;
  std::uint64_t lane;
  Hop hop;
  int peer;
  bool completed;  // false: posted or computed; true: a receive whose data was used for the first time
};

struct HostExecutorOptions {
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  bool checksum = true;
  WindowLimits window = {};   // limits of the lanes in flight
  std::uint32_t channel = 0;  // 0 or 1; executors of two channels share a transport, and their messages never match
  bool crowded = false;       // ranks share cores: a poll that finds nothing yields the core
  std::function<void(const TraceEvent&)> trace = {};
  observe::SourceId source = 0;  // the source of its recorded events
  std::uint8_t epoch = 0;        // the world's epoch modulo 256: written into frames, and required in received ones
};

class LaneRun;

class HostExecutor {
 public:
  /// Error(invalid_argument) where the transport names too many nodes, or too few.
  HostExecutor(Transport& transport, HostExecutorOptions options);
  ~HostExecutor();
  HostExecutor(const HostExecutor&) = delete;
  HostExecutor& operator=(const HostExecutor&) = delete;

  /// Sets other nodes than the transport's, for statistics, which count bytes that leave a node separately.
  void set_tiers(std::shared_ptr<const Tiers> tiers) { tiers_ = std::move(tiers); }
  [[nodiscard]] const std::shared_ptr<const Tiers>& tiers() const noexcept { return tiers_; }
  void set_window(WindowLimits limits);
  /// Sets the bytes in flight that a known link needs to stay full (window_bytes); 0: the window finds them by growing.
  void set_known_window(std::uint64_t bytes) noexcept { window_.set_known(bytes); }
  [[nodiscard]] const Window& window() const noexcept { return window_; }
  /// From now on tells `waits` which ranks this one waits for; null: none. It must outlive the executor.
  void watch_peers(observe::PeerWaits* waits) noexcept { peer_waits_ = waits; }

  /// Queues a collective. Every rank starts the same ones in the same order.
  std::shared_ptr<Execution> start(Schedule schedule, Task task);
  /// Counts native sums that were made without this executor: other ranks may have started them in theirs, and tags
  /// count collectives.
  void skip(std::size_t collectives) noexcept { next_sequence_ += static_cast<std::uint32_t>(collectives); }
  /// Runs all instructions that can run now; if there are none, waits up to `wait` for the transport. Returns whether
  /// anything happened. On any error it aborts the transport, gives up everything under way, and throws; every later
  /// call throws too.
  bool advance(std::chrono::microseconds wait);
  /// Calls advance() until `execution` is done.
  void wait(const Execution& execution);
  [[nodiscard]] bool idle() const noexcept { return lanes_.empty() && queue_.empty(); }
  /// Whether the transport still has messages of this executor to send.
  [[nodiscard]] bool sending() const noexcept;
  /// Gives up everything under way and tells the other ranks. Buffers that the transport may still touch are leaked.
  void fail(const Error& error) noexcept;

  [[nodiscard]] const memory::BufferPool& pool() const noexcept { return pool_; }
  [[nodiscard]] observe::SourceId source() const noexcept { return options_.source; }

 private:
  friend class LaneRun;
  void count_wait(double seconds, double asked) noexcept;
  void end_wait(std::uint64_t now) noexcept;
  void note_end(const Execution& execution) const noexcept;
  bool open_lanes();
  bool run_lanes();
  void close_lanes();
  void check_timeout();
  void throw_if_failed() const;

  Transport& transport_;
  HostExecutorOptions options_;
  std::shared_ptr<const Tiers> tiers_;
  memory::BufferPool pool_;
  std::deque<std::shared_ptr<Execution>> queue_;  // executions whose lanes are not all open yet
  std::list<std::unique_ptr<LaneRun>> lanes_;     // oldest first
  std::unique_ptr<LaneRun> next_;                 // the queue's next lane, where the window keeps it back
  Window window_;
  observe::PeerWaits* peer_waits_ = nullptr;
  std::uint32_t next_sequence_ = 0;
  std::chrono::steady_clock::time_point last_progress_;
  std::chrono::steady_clock::time_point left_;  // when the last advance() ended
  bool waits_ = false;                          // the last advance() found nothing to do
  std::uint64_t waits_since_ = 0;               // observe::ticks(); 0: it does not wait, or nobody observes
  std::uint64_t waited_until_ = 0;              // observe::ticks() at the latest poll
  std::optional<Error> failure_;
};

}  // namespace gradwire::exchange
