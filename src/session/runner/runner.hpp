// Runner is the communicating half of a session: it agrees on the plan, starts buckets and keeps residuals. A
// BucketRunner does that for gradients in host memory, a DeviceRunner on a device. One thread at a time may call it,
// unless a function says otherwise.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "choice/guard.hpp"
#include "choice/noise_scale.hpp"
#include "exchange/model/cost_model.hpp"
#include "exchange/peers.hpp"
#include "gradwire/session.hpp"
#include "memory/block.hpp"
#include "observe/peer_waits.hpp"
#include "observe/sources.hpp"
#include "plan/plan.hpp"
#include "session/state/state_file.hpp"
#include "session/step/step_info.hpp"

namespace gradwire::session {

/// A caller that has nothing else to do polls for this long before it sleeps between two looks, since a sleep takes
/// many times as long as a small bucket. It yields its core after every kLooksToYield looks.
inline constexpr std::chrono::microseconds kEager{1000};
inline constexpr unsigned kLooksToYield = 8;

/// Properties of a runner that never change.
struct RunnerInfo {
  int rank = 0;
  int world_size = 1;
  std::string transport = {};             // how bytes travel, for statistics
  bool checksum = false;                  // frames carry a CRC
  std::vector<std::uint32_t> nodes = {};  // see Transport::nodes
  bool knows_tiers = true;                // see plan::PlanOptions, as the next three
  bool packs_frames = true;
  bool node_sums = false;
  bool native_sums = false;
  std::string key_check = {};    // check value of the key that encrypts what is sent; empty: there is none
  bool background = false;       // start() also takes background buckets, each bucket once at a time
  bool crowded = false;          // this node has more ranks than cores
  bool shares_process = false;   // all ranks are threads of this process
  observe::SourceId source = 0;  // the source of the runner's events
};

/// Starts the reduction of buckets and moves it forward.
class Buckets {
 public:
  Buckets() = default;
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;
  virtual ~Buckets() = default;

  /// Starts the reduction of a bucket; `memory` is indexed by tensor.
  virtual void start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                     const StepInfo& step) = 0;
  struct Ended {
    std::uint32_t bucket;
    bool nonfinite;  // NaN or Inf in the result
    bool background = false;
    std::optional<choice::QualitySample> sample = {};
    std::optional<choice::GradientNorms> norms = {};
  };
  /// Moves the buckets under way forward, and waits up to `wait` if nothing can be done. Returns the buckets that have
  /// ended, or over a device those that were enqueued.
  virtual std::vector<Ended> advance(std::chrono::microseconds wait) = 0;
  /// Gives up the buckets under way.
  virtual void fail(const Error& error) noexcept = 0;
};

/// The residuals of error feedback. They may be used only while no bucket is under way.
class HeldByRunner {
 public:
  [[nodiscard]] virtual std::vector<SavedResidual> save_residuals(const plan::Plan& plan) = 0;
  /// Calls `body` for what save_residuals() returns, for the runner of the next world. This one may keep none of them:
  /// where it can, it gives each away before the next, so that they are not in memory twice.
  virtual void hand_over(const plan::Plan& plan, const std::function<void(const SavedResidual&)>& body) {
    for (const SavedResidual& residual : save_residuals(plan)) {
      body(residual);
    }
  }
  virtual void load_residuals(exchange::ResidualStore residuals, const plan::Plan& plan) = 0;
  /// Returns an empty store, to be filled and loaded here or into the runner of the next world. Residuals that do not
  /// fit into memory go where these do.
  [[nodiscard]] virtual exchange::ResidualStore empty_store(exchange::ResidualForm form) {
    return exchange::ResidualStore(std::move(form));
  }
  virtual void scale_residuals(float factor) = 0;
  [[nodiscard]] virtual std::uint64_t residual_bytes() = 0;
  /// Their memory, if the page pool may move it.
  [[nodiscard]] virtual std::vector<memory::Block*> blocks() { return {}; }

 protected:
  ~HeldByRunner() = default;
};

/// Properties of the coming steps whose time is to be predicted.
struct StepsAhead {
  bool weighted = false;
  bool look_first = false;  // steps begin with a look for NaN and Inf in gradients
};
/// How a trial is reduced, so that its time holds for the steps that it stands for.
struct TrialStep {
  enum class By : std::uint8_t {
    frames,
    native,   // the transport's own sum
    in_call,  // the transport's blocking call (StepInfo::InCall)
    at_once,  // the transport's own sum, in the way of SmallSteps
  };
  By by = By::frames;
  bool weighted = false;
};

/// Measurements of a runner, from which codecs are chosen at run time. They may be called only while no bucket is under
/// way.
class Probes {
 public:
  [[nodiscard]] virtual bool has_native(DType dtype) const = 0;
  /// Whether the last bucket is best summed by the transport's blocking call (StepInfo::InCall) in steps without
  /// weights. The answer is the same on every rank.
  [[nodiscard]] virtual bool ends_in_call(const plan::Plan& plan, std::span<const BucketChoice> choices) const = 0;
  /// Takes the measured link, from which the runner computes how many bytes to keep in flight from now on.
  virtual void know_link(const exchange::Cluster& cluster) = 0;
  /// Returns the seconds that this rank takes to send `bytes` to rank `to` and to receive as many from rank `from`,
  /// while all other ranks do the same.
  virtual double time_exchange(int to, int from, std::uint64_t bytes) = 0;
  /// Returns the seconds of one reduction of `trial`, which has one bucket of one tensor. Residuals and statistics stay
  /// as they are.
  virtual double time_reduction(const plan::Plan& trial, const TensorMemory& memory, const TrialStep& step) = 0;

 protected:
  ~Probes() = default;
};

/// The memory of a device that coming steps take.
class StepRoom {
 public:
  /// Allocates the memory that steps with this plan need, if they may be captured.
  virtual void reserve(const plan::Plan& plan, const StepInfo& step) = 0;
  /// Allocates the memory that steps with codec = "auto" at these levels need, whichever comes first. Returns false,
  /// and allocates nothing, where the device has too little. It may be called while no bucket is under way.
  [[nodiscard]] virtual bool take(const plan::Plan& plan, const StepInfo& step,
                                  std::span<const std::size_t> levels) = 0;
  /// Frees what the latest take() has allocated. No step was enqueued since.
  virtual void give_back() = 0;

 protected:
  ~StepRoom() = default;
};

/// Steps on a device, which works without the host: a step ends for the host when it is enqueued, and it may be
/// captured to be replayed later.
class DeviceSteps {
 public:
  /// Ends a step after all its buckets have ended, or without any bucket if it is skipped. Returns whether NaN or Inf
  /// is known to be in results that advance() has not reported as such.
  virtual bool end_step(bool skipped) = 0;
  /// Blocks until the device has done all enqueued work, so that the results are complete, and throws if some of it
  /// failed. Buckets do not overlap across this call, so every rank calls it at the same places.
  virtual void settle() = 0;
  /// Whether the device has done the work that start() enqueued for this bucket.
  virtual bool complete(std::uint64_t step, std::uint32_t bucket) = 0;
  /// Blocks until complete() would return true.
  virtual void wait_complete(std::uint64_t step, std::uint32_t bucket) = 0;
  /// Whether the bucket is not enqueued yet, since it is to be made together with the next ones.
  [[nodiscard]] virtual bool waits_to_join(std::uint64_t step, std::uint32_t bucket) const = 0;
  /// Whether the caller's work is being captured.
  [[nodiscard]] virtual bool capturing() = 0;
  [[nodiscard]] virtual StepRoom& room() noexcept = 0;
  /// Returns the number of the device's step if replays of captured steps may have advanced it. Blocks.
  [[nodiscard]] virtual std::optional<std::uint32_t> replayed_to() = 0;
  virtual void set_step(std::uint64_t step) = 0;
  /// Any thread may call this at any time.
  [[nodiscard]] virtual DeviceMemory memory() const = 0;

 protected:
  ~DeviceSteps() = default;
};

/// Steps that consist of a few small native sums, which are reduced at once on the calling thread.
class SmallSteps {
 public:
  /// Whether steps of these buckets are small. Steps that have residuals to add or weights, or that look for NaN first,
  /// are excepted. The messages are the same either way, so ranks need not agree on it.
  [[nodiscard]] virtual bool takes(const plan::Plan& plan, std::span<const BucketChoice> choices) const = 0;
  /// Whether the next step has residuals to add to gradients. May be called while no bucket is under way.
  [[nodiscard]] virtual bool has_to_add() const = 0;
  /// Reduces all buckets. Returns whether NaN or Inf is in a result.
  virtual bool reduce(const plan::Plan& plan, std::span<const TensorMemory> memory, const StepInfo& step) = 0;

 protected:
  ~SmallSteps() = default;
};

/// Records how steps change the residuals, so that a step can be undone. It may be used only while no bucket is under
/// way.
class StepUndo {
 public:
  /// Starts to record changes.
  virtual void remember() = 0;
  /// Does what of commit() may fail, so that a step counts only where its residuals can be kept.
  virtual void prepare_commit() {}
  /// Makes the step count, so that it can no longer be undone. Does nothing if no changes are recorded.
  virtual void commit() = 0;
  /// Restores the residuals of the last commit().
  virtual void undo_step() = 0;

 protected:
  ~StepUndo() = default;
};

class Runner : public Buckets {
 public:
  explicit Runner(RunnerInfo info) : info_(std::move(info)) {}

  // Any thread may call these at any time.
  [[nodiscard]] const RunnerInfo& info() const noexcept { return info_; }
  /// Tells every rank that this one gives up, and ends all waits.
  virtual void abort(const Error& error) noexcept = 0;
  /// Returns the statistics since the last reset, one for each group of the plan.
  [[nodiscard]] virtual std::vector<Statistics> statistics() const = 0;
  /// Returns the sum over all groups and all calls so far. Resets do not change it, so callers may take differences.
  [[nodiscard]] virtual Statistics totals() const = 0;
  virtual void reset_statistics() = 0;
  /// Returns more facts for observers.
  [[nodiscard]] virtual observe::Knowledge known(const plan::Plan& /*plan*/) const { return {}; }

  /// Throws Error(invalid_argument) if a gradient is in the wrong memory.
  virtual void check_memory(const View& gradient, const std::string& what) = 0;
  /// Throws Error(mismatch) on every rank, naming the first difference, unless all ranks made the same plan and named
  /// the same `parts`. Returns the text `beside` of each rank.
  virtual std::vector<std::string> agree(const plan::Plan& plan, bool weighted, std::uint64_t step,
                                         const std::string& parts, const std::string& beside) = 0;
  /// Returns the last level of codec = "auto" for which every rank had memory at the latest agree().
  [[nodiscard]] virtual std::size_t most_level() const noexcept { return std::numeric_limits<std::size_t>::max(); }
  /// Returns the ranks whose gradients hold NaN or Inf, after asking all of them. `scale` is this rank's loss scale.
  /// Throws Error(mismatch) if another rank has a different one.
  [[nodiscard]] virtual std::vector<int> nonfinite_ranks(std::span<const TensorMemory> memory, double scale,
                                                         std::uint64_t step) = 0;
  /// Returns memory of the kind that gradients are in, for values that nobody reads. It lives as long as the pointer.
  [[nodiscard]] virtual std::shared_ptr<std::byte> scratch(std::uint64_t bytes) = 0;
  /// Broadcasts the exact values from rank `root`, after a check that all ranks make the same call. `packed`: in packed
  /// frames, over host memory.
  virtual void broadcast(std::span<const View> values, int root, bool packed) = 0;
  /// Throws Error(mismatch), which names the ranks whose bytes differ.
  virtual void compare(std::span<const View> values, std::uint64_t step) = 0;
  /// Returns a hash of each view, which must be f32. Ranks with equal bytes get equal hashes. Over device memory it
  /// waits for the device.
  [[nodiscard]] virtual std::vector<std::uint64_t> hashes(std::span<const View> values) = 0;
  [[nodiscard]] virtual exchange::Peers& peers() noexcept = 0;
  [[nodiscard]] virtual HeldByRunner& held() noexcept = 0;

  // Each of these returns null if the runner does not have it.
  [[nodiscard]] virtual Probes* probes() noexcept { return nullptr; }
  [[nodiscard]] virtual DeviceSteps* device() noexcept { return nullptr; }
  /// Records from now on how long this rank waits for each peer, and returns the record. Must be called while no bucket
  /// is under way.
  [[nodiscard]] virtual observe::PeerWaits* watch_peers() { return nullptr; }
  [[nodiscard]] virtual SmallSteps* small() noexcept { return nullptr; }
  [[nodiscard]] virtual StepUndo* undo() noexcept { return nullptr; }

 private:
  RunnerInfo info_;
};

/// Makes the runner of one world over its transport.
using MakeRunner = std::function<std::unique_ptr<Runner>(std::shared_ptr<Transport> transport, std::uint32_t epoch)>;

// gradwire::nccl::make_session and gradwire::cuda::make_session call these.
[[nodiscard]] Session make_session(std::unique_ptr<Runner> runner, Policy policy, SessionOptions options);
/// Makes a session that goes on without ranks that end. It calls `make` for each world, with the world's epoch.
[[nodiscard]] Session make_session(std::shared_ptr<Processes> processes, MakeRunner make, Policy policy,
                                   SessionOptions options);

}  // namespace gradwire::session
