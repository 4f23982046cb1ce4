// What a training loop holds: tensors are added once; each step their gradients become ready in any order and are
// reduced in the background, bucket by bucket, while the backward pass goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/communicator.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/statistics.hpp"
#include "gradwire/transport.hpp"

namespace gradwire {

/// Which threads may communicate; the MPI adapter sets it from the level that MPI_Init_thread granted.
enum class Threading : std::uint8_t {
  background,   // a progress thread communicates (MPI_THREAD_MULTIPLE, inproc)
  serialized,   // calls progress, under a lock (MPI_THREAD_SERIALIZED)
  main_thread,  // only the thread that made the session progresses; other threads' ready() only enqueues (FUNNELED,
                // SINGLE)
};

struct SessionOptions {
  Reduction reduction = Reduction::mean;
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  std::optional<bool> checksum = {};  // default: as the transport says
  Threading threading = Threading::background;
  bool measure_error = false;  // also reduce exactly, to report relative error; doubles the traffic, off by default
  std::uint64_t compare_ranks_every =
      0;  // debug: hash results across ranks every N steps, fail on a difference; 0: never
};

/// Identifies a tensor of a session; the order of add().
enum class TensorId : std::uint32_t {};

/// What ready() set going: one bucket of one step. A default one (from ready() under no_sync) is always done.
struct Ticket {
  static constexpr std::uint32_t kNothing = ~0U;
  std::uint64_t step = 0;
  std::uint32_t bucket = kNothing;
};

class Session {
 public:
  Session(std::shared_ptr<Transport> transport, Policy policy, SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  /// Joins the progress thread. A step still under way is aborted on every rank.
  ~Session();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world_size() const noexcept;

  /// Registers a gradient; same names, counts, dtypes and order on every rank. The memory must stay valid until the
  /// session ends or ready(id, view) replaces it. Only before the first ready(). `ndim` serves policy rules.
  TensorId add(std::string_view name, View gradient, std::uint32_t ndim = 1);

  /// Sends rank `root`'s values to every rank, exactly. Between steps only.
  void broadcast(std::span<const View> values, int root = 0);
  void broadcast(View value, int root = 0) { broadcast(std::span<const View>(&value, 1), root); }

  /// The gradient is complete. Its bucket starts once all its tensors are ready and all earlier buckets have started.
  /// Buckets form in reverse order of add(). Any thread. Twice in one step is Error(invalid_argument).
  /// The ticket tells when this gradient holds the result; most callers wait for all in finish() instead.
  Ticket ready(TensorId id);
  /// The same with the gradient at another address in this step; count and dtype as added.
  Ticket ready(TensorId id, View gradient);
  /// This rank has no gradient for it in this step: it counts as zeros, and receives the result.
  Ticket ready_zero(TensorId id);

  /// Whether the gradient behind the ticket holds the reduced value. Never blocks. Throws the step's Error if there is
  /// one.
  [[nodiscard]] bool done(const Ticket& ticket);
  /// Blocks until done(ticket). Error(invalid_argument) while a tensor that must come before is not ready on this rank.
  void wait(const Ticket& ticket);

  /// Blocks until every gradient of this step holds the reduced value. Error(invalid_argument) names tensors that were
  /// not ready on this rank (and aborts the others).
  void finish();

  /// While true, ready() does nothing and finish() is not called: gradients accumulate locally.
  void set_no_sync(bool no_sync);
  /// Scope of set_no_sync(true).
  class NoSync {
   public:
    explicit NoSync(Session& session) : session_(session) { session_.set_no_sync(true); }
    ~NoSync() { session_.set_no_sync(false); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Session& session_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// This rank's weight (sample count) for the coming step; before its first ready(). Once set, every step is weighted;
  /// every rank sets it or none does.
  void set_weight(double samples);

  /// What every tensor resolved to and why; a table for people.
  [[nodiscard]] std::string explain();
  /// 16 hex digits over policy, tensors, buckets, wire version; equal on all ranks or the first step fails.
  [[nodiscard]] std::string fingerprint();
  [[nodiscard]] std::uint64_t step() const noexcept;
  [[nodiscard]] SessionStatistics statistics() const;
  void reset_statistics();

  /// Gives up on every rank; later calls throw Error(aborted).
  void abort(const std::string& why) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradwire
