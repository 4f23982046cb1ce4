// The communicating half of a session: agrees on the plan, starts buckets, keeps residuals. A BucketRunner does that
// for gradients in host memory, a DeviceRunner on a device. One thread at a time, unless said otherwise.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "observe/peer_waits.hpp"
#include "observe/sources.hpp"
#include "plan/plan.hpp"
#include "session/state/state_file.hpp"
#include "session/step/step_info.hpp"

namespace gradwire::session {

/// A caller has nothing else to do: for so long it does not sleep between two looks, which would cost a small bucket
/// many times what it takes. It yields after some looks.
inline constexpr std::chrono::microseconds kEager{1000};
inline constexpr unsigned kLooksToYield = 8;

/// What a runner is, once and for all.
struct RunnerInfo {
  int rank = 0;
  int world_size = 1;
  std::string transport = {};             // how bytes travel, for statistics
  bool checksum = false;                  // frames carry a CRC
  std::vector<std::uint32_t> nodes = {};  // see Transport::nodes
  bool background = false;                // start() takes buckets in the background, one of each at a time
  bool crowded = false;                   // ranks of this node have fewer cores than they are
  observe::SourceId source = 0;           // of its events
};

/// What moves buckets.
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
  /// Progress; waits up to `wait` where nothing can be done. Returns the buckets that have ended, or, over a device,
  /// that were started.
  virtual std::vector<Ended> advance(std::chrono::microseconds wait) = 0;
  /// Gives up what is under way.
  virtual void fail(const Error& error) noexcept = 0;
};

/// What error feedback holds; not while a bucket is under way.
class HeldByRunner {
 public:
  [[nodiscard]] virtual std::vector<SavedState::Residual> save_residuals(const plan::Plan& plan) = 0;
  virtual void load_residuals(exchange::ResidualStore residuals, const plan::Plan& plan) = 0;
  virtual void scale_residuals(float factor) = 0;
  [[nodiscard]] virtual std::uint64_t residual_bytes() = 0;

 protected:
  ~HeldByRunner() = default;
};

/// What steps that are to be foreseen have in common.
struct StepsAhead {
  bool weighted = false;
  bool look_first = false;  // for NaN and Inf in gradients
};
/// How a trial is made: as the steps that it speaks for.
struct TrialStep {
  enum class By : std::uint8_t {
    frames,
    native,   // the transport's own sum
    in_call,  // its blocking call (StepInfo::InCall)
    at_once,  // its own sum, as SmallSteps
  };
  By by = By::frames;
  bool weighted = false;
};

/// What a runner can measure, so that codecs may be chosen at run time; nothing is under way then.
class Probes {
 public:
  [[nodiscard]] virtual bool has_native(DType dtype) const = 0;
  /// Whether the last bucket is best summed by the transport's blocking call (StepInfo::InCall), in steps without
  /// weights. The same on every rank.
  [[nodiscard]] virtual bool ends_in_call(const plan::Plan& plan, std::span<const BucketChoice> choices) const = 0;
  /// What was measured: so much is kept in flight from now on.
  virtual void know_link(const exchange::Cluster& cluster) = 0;
  /// Seconds in which this rank sends `bytes` to one rank and receives as many from another, while all others do alike.
  virtual double time_exchange(int to, int from, std::uint64_t bytes) = 0;
  /// Seconds of one reduction of `trial`, which has one bucket of one tensor; residuals and statistics stay as they
  /// are.
  virtual double time_reduction(const plan::Plan& trial, const TensorMemory& memory, const TrialStep& step) = 0;

 protected:
  ~Probes() = default;
};

/// A device that works on by itself: a step ends when it is enqueued, and may be captured to be replayed later.
class DeviceSteps {
 public:
  /// After all buckets of a step, or none where it is skipped. Returns whether NaN or Inf is known to be in results
  /// (as far as advance() did not say so).
  virtual bool end_step(bool skipped) = 0;
  /// Blocks until the device has done all that was enqueued, so that results are there; throws what went wrong with it.
  /// It ends the overlap of what came before with later buckets: every rank calls it at the same places.
  virtual void settle() = 0;
  /// Whether the device has done what start() was asked for, and the wait for it.
  virtual bool complete(std::uint64_t step, std::uint32_t bucket) = 0;
  virtual void wait_complete(std::uint64_t step, std::uint32_t bucket) = 0;
  /// Whether what the caller does now is captured.
  [[nodiscard]] virtual bool capturing() = 0;
  /// Takes the memory that steps with this plan need.
  virtual void reserve(const plan::Plan& plan, const StepInfo& step) = 0;
  /// The step that the device is at, where replays of captured steps may have advanced it; blocks.
  [[nodiscard]] virtual std::optional<std::uint32_t> replayed_to() = 0;
  virtual void set_step(std::uint64_t step) = 0;
  /// Any thread, any time.
  [[nodiscard]] virtual DeviceMemory memory() const = 0;

 protected:
  ~DeviceSteps() = default;
};

/// Steps that are nothing but a few small native sums: reduced at once, on the calling thread.
class SmallSteps {
 public:
  /// Whether steps of these buckets are such, as long as there is nothing to add, and but for those that have weights
  /// or look for NaN first. Messages are the same either way, so ranks need not agree on it.
  [[nodiscard]] virtual bool takes(const plan::Plan& plan, std::span<const BucketChoice> choices) const = 0;
  /// Whether the next step has residuals to add to gradients, while nothing is under way.
  [[nodiscard]] virtual bool has_to_add() const = 0;
  /// Reduces all buckets. Returns whether NaN or Inf is in a result.
  virtual bool reduce(const plan::Plan& plan, std::span<const TensorMemory> memory, const StepInfo& step) = 0;

 protected:
  ~SmallSteps() = default;
};

/// What steps change of what is held, so that one can be undone; not while a bucket is under way.
class StepUndo {
 public:
  /// From here on.
  virtual void remember() = 0;
  /// The step counts.
  virtual void commit() = 0;
  /// As it was at the last commit().
  virtual void undo_step() = 0;

 protected:
  ~StepUndo() = default;
};

class Runner : public Buckets {
 public:
  explicit Runner(RunnerInfo info) : info_(std::move(info)) {}

  // Any thread, any time.
  [[nodiscard]] const RunnerInfo& info() const noexcept { return info_; }
  /// Tells every rank that this one gives up; ends all waits.
  virtual void abort(ErrorCode code, const std::string& message) noexcept = 0;
  /// One row a group of the plan.
  [[nodiscard]] virtual std::vector<Statistics> statistics() const = 0;
  /// Of all groups, ever: whoever takes differences sees nothing of a reset.
  [[nodiscard]] virtual Statistics totals() const = 0;
  virtual void reset_statistics() = 0;
  /// What else is worth telling whoever observes.
  [[nodiscard]] virtual observe::Knowledge known(const plan::Plan& /*plan*/) const { return {}; }

  /// Error(invalid_argument) where a gradient is in the wrong memory.
  virtual void check_memory(const View& gradient, const std::string& what) = 0;
  /// Error(mismatch) on every rank, naming the first difference, unless all ranks made the same plan and named the same
  /// `parts`. Returns what each rank says `beside` it.
  virtual std::vector<std::string> agree(const plan::Plan& plan, bool weighted, std::uint64_t step,
                                         const std::string& parts, const std::string& beside) = 0;
  /// Ranks whose gradients hold NaN or Inf; asks all of them. `scale` is this rank's loss scale: Error(mismatch) where
  /// another rank has another one.
  [[nodiscard]] virtual std::vector<int> nonfinite_ranks(std::span<const TensorMemory> memory, double scale,
                                                         std::uint64_t step) = 0;
  /// Memory such as gradients are in, for what nobody reads; until the pointer is gone.
  [[nodiscard]] virtual std::shared_ptr<std::byte> scratch(std::uint64_t bytes) = 0;
  /// Exact, from `root`, after a check that all ranks mean the same.
  virtual void broadcast(std::span<const View> values, int root) = 0;
  /// Error(mismatch) naming the ranks whose bytes differ.
  virtual void compare(std::span<const View> values, std::uint64_t step) = 0;
  /// A hash of each, of f32: alike on ranks whose bytes are. Over device memory it waits for the device.
  [[nodiscard]] virtual std::vector<std::uint64_t> hashes(std::span<const View> values) = 0;
  [[nodiscard]] virtual exchange::Peers& peers() noexcept = 0;
  [[nodiscard]] virtual HeldByRunner& held() noexcept = 0;

  // What it has, or has not.
  [[nodiscard]] virtual Probes* probes() noexcept { return nullptr; }
  [[nodiscard]] virtual DeviceSteps* device() noexcept { return nullptr; }
  /// What it waits for, from now on; while no bucket is under way.
  [[nodiscard]] virtual observe::PeerWaits* watch_peers() { return nullptr; }
  [[nodiscard]] virtual SmallSteps* small() noexcept { return nullptr; }
  [[nodiscard]] virtual StepUndo* undo() noexcept { return nullptr; }

 private:
  RunnerInfo info_;
};

/// Makes the runner of one world over its transport.
using MakeRunner = std::function<std::unique_ptr<Runner>(std::shared_ptr<Transport> transport, std::uint32_t epoch)>;

// What gradwire::nccl::make_session and gradwire::cuda::make_session call.
[[nodiscard]] Session make_session(std::unique_ptr<Runner> runner, Policy policy, SessionOptions options);
/// A session that goes on without ranks that end; `make` is called anew for each world, whose number is `epoch`.
[[nodiscard]] Session make_session(std::shared_ptr<Processes> processes, MakeRunner make, Policy policy,
                                   SessionOptions options);

}  // namespace gradwire::session
