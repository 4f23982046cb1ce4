// One rank's part in one communicator whose calls are on device memory: a stream executor enqueues what a router
// decides. Nothing here knows NCCL or CUDA: the caller brings the device. Nothing waits for a device except the
// agreement of the ranks, and the question for the step if a codec needs it.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drop_in/device_clock.hpp"
#include "drop_in/device_exchange.hpp"
#include "drop_in/device_roles.hpp"
#include "drop_in/device_trials.hpp"
#include "drop_in/frame_memory.hpp"
#include "drop_in/own_communicator.hpp"
#include "drop_in/rank_gather.hpp"
#include "drop_in/router.hpp"
#include "exchange/stream/stream_call.hpp"
#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "exchange/stream/window_calls.hpp"
#include "memory/arena.hpp"

namespace gradwire::drop_in {

/// The communicator as a device that enqueues messages, for calls from any of the job's streams. What ranks exchange
/// beside the calls, and all messages while there is no own_communicator(), run in one order with the job's own calls
/// on that communicator.
class DeviceLink {
 public:
  DeviceLink() = default;
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;
  virtual ~DeviceLink() = default;

  [[nodiscard]] virtual exchange::StreamDevice& device() noexcept = 0;
  /// Sets the stream, a handle of the library, to which follow_caller() and lead_caller() refer from now on.
  virtual void set_caller(void* stream) = 0;
  /// Between follow_caller() and lead_caller(): orders a run of calls, which is captured into a graph or not, behind
  /// all earlier ones and behind the latest replays of graphs, whatever their streams.
  virtual void begin_run(bool captured) = 0;
  virtual void end_run(bool captured) = 0;
  /// Returns the exchange by which the ranks agree before calls.
  [[nodiscard]] virtual RankGather& gather() noexcept = 0;
  /// Returns null if messages always travel on the job's communicator.
  [[nodiscard]] virtual OwnCommunicator* own_communicator() noexcept { return nullptr; }
  /// Returns the name of the host, which no other host has.
  [[nodiscard]] virtual std::string host_name() const;
  /// Returns the messages by which the ranks agree on numbers beside the calls.
  [[nodiscard]] virtual ExchangePort& exchange_port() noexcept = 0;
  [[nodiscard]] virtual DeviceClock& clock() noexcept = 0;
  /// Returns device memory for what lasts beyond a call, apart from the device's arena().
  [[nodiscard]] virtual memory::Arena& lasting() noexcept = 0;
  /// Returns device memory for trials, in pieces that are given back one by one. It is asked to free a piece only when
  /// the device does not use it any more, and frees at its own end, behind the device's, what is left.
  [[nodiscard]] virtual memory::ArenaSource& loans() noexcept = 0;
};

/// A sum or mean over the ranks, as the caller wrote it. Its memory is the device's.
struct DeviceReduce {
  const void* send = nullptr;
  void* receive = nullptr;  // may be where `send` is; in a reduce-scatter, where this rank's segment of it is
  std::uint64_t count = 0;  // elements that every rank receives
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  double factor = 1;                    // of this rank's values; 1 in a mean
  const void* device_factor = nullptr;  // if not null, the factor: a value of `dtype` in device memory
  void* stream = nullptr;
  bool scaled = false;    // the operation has factors, whatever this rank's is
  bool captured = false;  // the stream is being captured into a graph
  bool apart = false;     // this process has made collectives on other communicators since the call before
};

class DeviceReducer {
 public:
  /// `configuration` and `ledger` must outlive the reducer. `process` is a number that no other process has. `name` is
  /// the communicator's, which rules ask for; it counts if all ranks gave it the same one.
  DeviceReducer(const Configuration& configuration, Ledger& ledger, std::unique_ptr<DeviceLink> link,
                std::uint64_t process, std::string name = {});
  DeviceReducer(const DeviceReducer&) = delete;
  DeviceReducer& operator=(const DeviceReducer&) = delete;
  ~DeviceReducer();

  // The agreement, which is made once: all ranks come here behind their first reduction on the communicator, whatever
  // that is and however they are configured. A thread with several communicators makes it for all at once, since other
  // ranks may wait in all of them: first open() each, then post() each, in one group of the library, then close() each,
  // which waits for the others, and last follow() each, in the order of their identities. Any Error ends the reducer,
  // except that of a device which cannot run the kernels or has no memory: then all ranks pass everything.
  void open();
  void post();
  void close();
  /// Where codec = "auto" chooses and rank 0 has the choices of an earlier job, all ranks follow these.
  void follow();
  [[nodiscard]] bool agreed() const noexcept { return router_.has_value(); }
  /// Returns a number that is equal on all ranks of the communicator and differs from other communicators', so that the
  /// reducers of each process have the same order. Valid after the agreement.
  [[nodiscard]] std::uint64_t identity() const noexcept { return identity_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] const AgreedSettings& agreement() const noexcept { return agreement_; }
  /// Returns why this rank compresses nothing, in full; empty if it would. The other ranks are told the beginning.
  [[nodiscard]] const std::string& disabled() const noexcept { return disabled_; }
  [[nodiscard]] bool dry_run() const noexcept { return router_->dry_run(); }

  /// See Router::route(). The caller calls it after the agreement, for each call but captured ones. May wait for the
  /// other ranks. Besides the router, the call's role decides, and the memory for its residuals.
  [[nodiscard]] Router::Route route(const Call& call, const CallDecision& decided, std::string_view op,
                                    const DeviceReduce& reduce);
  /// Does the same for a captured call, which is compressed if all calls like it, made since the step last changed,
  /// were, and keep no residuals. Where codec = "auto" chooses, it passes. Waits for nobody, and no later call depends
  /// on it.
  [[nodiscard]] Router::Route route_captured(const Call& call, std::string_view op, const DeviceReduce& reduce) const;
  /// Returns lines for people, which one rank has.
  [[nodiscard]] std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }
  [[nodiscard]] CallTotals passed_totals(const Router::Route& route, std::uint64_t bytes) const {
    return router_->passed_totals(route, bytes);
  }
  void count_passed(const Router::Route& route, std::uint64_t bytes) { router_->count_passed(route, bytes, 0); }
  [[nodiscard]] CallDecision decide(const Call& call) const noexcept { return router_->decide(call); }
  /// Adds the choices so far to the ledger, if they are to be recorded and this is rank 0.
  void record_choices() const;
  /// Notes a call on the communicator that is not routed. Point-to-point calls are not noted, since all ranks must
  /// agree.
  void note_other_call() noexcept { ++other_calls_; }

  struct Job {
    Router::Route route;
    DeviceReduce reduce;
  };
  /// Enqueues the routed calls in order and counts them. They run after all that the jobs' streams hold, which then
  /// wait for them. All of them are captured, or none.
  void run(std::span<const Job> jobs);
  /// Has the library make a job's call, with these buffers; returns its code.
  using LibraryCall = std::function<int(const void* send, void* receive)>;
  /// Makes a call whose route has a trial: once for the job, once by the rival way on a copy. Returns the library's
  /// code. `bytes` is the size of the call's larger buffer.
  [[nodiscard]] int run_trial(const Job& job, std::uint64_t bytes, const LibraryCall& library);
  /// Enqueues what the ranks must agree on. The caller calls it behind each routed call, or behind the group in which
  /// it was made, with the call's stream.
  void end_call(void* stream);

  /// Returns why no call can be made right any more; empty if nothing has failed.
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
  void fail(const std::string& why) { failure_ = why; }
  // Any thread may call the next two at any time.
  /// Ends kernels that wait for other ranks: the job ends the communicator.
  void abort() noexcept;
  /// Returns which rank some rank's kernel has waited for in vain, as the next call will report it; empty if none.
  [[nodiscard]] std::string missing() const noexcept;
  /// Returns the bytes of the residuals that this reducer holds on the device.
  [[nodiscard]] std::uint64_t residual_bytes() const noexcept;
  /// Returns the number of frames that arrived damaged since the last call; they were decoded to NaN.
  [[nodiscard]] std::uint32_t take_bad_frames() noexcept;

 private:
  // Holds the residuals of error feedback for one call of the step.
  struct Residuals {
    exchange::DeviceRange<float> local = {};
    exchange::DeviceRange<float> owner = {};
    // These are the same on all ranks, though a rank may own nothing.
    exchange::ResidualSites sites = {};  // for which there is memory
    bool held = false;                   // whether some rank holds any
  };
  // Names calls that look alike on every rank.
  struct Kind {
    Signature call;
    std::string op;
    friend auto operator<=>(const Kind&, const Kind&) = default;  // NOLINT(modernize-use-nullptr): takes <=> for 0
  };
  // Says how a job uses the residuals of its place.
  struct Sites {
    bool feedback = false;              // it keeps what encoding drops
    exchange::ResidualSites held = {};  // it adds those that are held
  };
  // Describes a job among those that run together.
  struct Use {
    Job job;
    Sites sites = {};
    Residuals residuals = {};
    std::uint32_t number = 0;  // stands in its frames
  };
  using Executions = std::vector<std::shared_ptr<const exchange::StreamExecution>>;
  void open_device();
  template <class T>
  void put(const T& mine);
  template <class T>
  [[nodiscard]] std::vector<T> take();
  // Returns what each rank has given.
  template <class T>
  [[nodiscard]] std::vector<T> gather(const T& mine);
  [[nodiscard]] bool all_say(std::uint64_t value);
  [[nodiscard]] bool all_have(bool mine) { return all_say(mine ? 1 : 0) && mine; }
  void open_own_communicator(const Job& first);
  // Finds out what the ranks can do beside messages, and offers it as ways of codec = "auto".
  void open_offers(const DeviceReduce& reduce);
  // Opens windows for one kernel inside the node. Returns whether all ranks have passed their test.
  [[nodiscard]] bool open_windows(const DeviceReduce& reduce);
  // Joins the nodes of the communicator's ranks, if these are several of equal size. Returns whether all ranks have.
  [[nodiscard]] bool join_nodes(const DeviceReduce& reduce);
  [[nodiscard]] exchange::Tiers find_nodes();
  [[nodiscard]] bool split_by_node();
  [[nodiscard]] std::vector<std::string> gather_texts(const std::string& mine);
  void check_node_kernel() const;
  void prepare_choices();
  [[nodiscard]] std::string send_script(std::span<std::byte> memory);
  // Returns why the call's role forbids to compress it. `compressible`: the policy would, but for the role.
  [[nodiscard]] Reason reason_of_role(const Call& call, bool any_role, bool compressible, const DeviceReduce& reduce);
  void begin_call();
  void forget_old_residuals();
  void take_memory(const Call& call, Router::Route& route, const DeviceReduce& reduce);
  [[nodiscard]] bool has_room(const Call& call, const Router::Route& route, const DeviceReduce& reduce);
  // The next functions see to memory for the messages of calls; they are in device_reducer_memory.cpp.
  [[nodiscard]] static FrameMemory::Kind kind_of(const Router::Route& route, const DeviceReduce& reduce, Sites sites);
  [[nodiscard]] bool all_have_frames(const Router::Route& route, const DeviceReduce& reduce);
  [[nodiscard]] bool all_have_frames(std::span<const Job> jobs);
  [[nodiscard]] std::uint64_t bytes_of_trial(const choice::DeviceGate::Asked& asked);
  [[nodiscard]] Residuals expected_residuals(const Job& job) const;
  void play(exchange::StreamBackend& backend, std::span<const Use> uses);
  void tell_of_memory(const Router::Route& route);

  // Returns whether the job's place in the step, if it has residuals there, is still the one of the present step.
  [[nodiscard]] bool is_placed(const Job& job) const;
  [[nodiscard]] Sites sites_of(const Job& job) const;
  [[nodiscard]] exchange::StreamCall resolve(const Job& job, Sites sites) const;
  // Enqueues jobs of a run, which has as many before them, and more behind them unless they are the last.
  Executions enqueue(std::span<const Job> jobs, std::size_t before = 0, bool last = true);
  // Enqueues calls over any backend, and returns them in the order of `uses`.
  Executions make(exchange::StreamExecutor& executor, exchange::StreamBackend& backend, std::span<const Use> uses);
  [[nodiscard]] exchange::StreamExecutor::Call call_of(const Use& use, const double* factor);
  Residuals open_residuals(std::size_t place, const exchange::ResidualUse& use);
  void make_room(exchange::DeviceRange<float>& range, const exchange::ResidualUse::Range& wanted);
  void release(std::span<const Residuals> old);
  // Frees the residuals of a call in the step; the ranks will ask each other again for room.
  void drop_residuals(std::size_t place);

  const Configuration& configuration_;
  Ledger& ledger_;
  std::unique_ptr<DeviceLink> link_;
  exchange::StreamDevice& device_;
  exchange::StreamBackend& backend_;
  exchange::StreamExecutor executor_;
  int rank_;
  int world_;
  std::uint64_t process_;
  std::uint64_t identity_ = 0;
  AgreedSettings agreement_;
  CommunicatorName choices_name_;  // on rank 0
  std::string script_;             // on rank 0: choices to follow, as a text
  std::uint64_t script_bytes_ = 0;
  FrameMemory frames_;
  std::optional<Router> router_;
  std::string name_;
  DeviceExchange exchange_;
  std::optional<DeviceTrials> trials_;  // if codec = "auto" chooses
  bool offers_open_ = false;
  std::shared_ptr<const exchange::Tiers> tiers_;                 // the nodes that the device has joined
  std::atomic<const exchange::WindowCalls*> windows_ = nullptr;  // the device's, once they are tested
  DeviceRoles roles_;
  bool needs_roles_ = false;             // a call came that the policy compresses by its role
  std::uint64_t uncounted_ = 0;          // calls on the communicator that could not be compressed, and scatters
  std::map<Kind, Router::Route> kinds_;  // of calls that a graph may hold: how the latest one was compressed
  // By order: the bytes of the policy's limit that the residuals of a place take; 0: they do not fit; no value: the
  // ranks have not asked each other yet.
  std::vector<std::optional<std::uint64_t>> rooms_;
  std::uint64_t room_taken_ = 0;  // bytes of the policy's limit
  bool told_of_room_ = false;
  bool told_of_memory_ = false;
  std::vector<std::string> lines_;
  std::uint64_t other_calls_ = 0;
  std::uint64_t resets_ = 0;          // the router's, when the latest residual was made
  std::vector<Residuals> residuals_;  // by order
  std::uint32_t bad_frames_ = 0;      // the device's count, as last reported
  std::uint32_t* step_ = nullptr;     // device memory: runs so far
  std::string disabled_;
  std::string failure_;
};

}  // namespace gradwire::drop_in
