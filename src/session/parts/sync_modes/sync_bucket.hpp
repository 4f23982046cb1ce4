// One bucket under sync modes: the copies that travel for it, and the values that it keeps until the next
// synchronisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/dtype.hpp"
#include "memory/paged_vector.hpp"
#include "plan/plan.hpp"
#include "session/runner/runner.hpp"
#include "session/state/state_file.hpp"

namespace gradwire::session {

/// A copy of a bucket's values.
using SyncValues = memory::PagedVector<std::byte, memory::MemoryUse::copies>;

/// A copy of a bucket's values that travels: gradients or parameters.
struct SyncJob {
  std::uint32_t bucket = 0;
  bool carries_parameters = false;  // otherwise of gradients
  const plan::Bucket* travels = nullptr;
  StepInfo info;
  std::uint64_t step = 0;
  double scale = 1;
  std::uint64_t turn = 0;  // the number of the bucket's turn
  SyncValues values;       // in the order of `travels`
  std::vector<TensorMemory> memory = {};
  SyncValues input = {};              // unless it counts from the start: values before the reduction, until it counts
  std::optional<double> weight = {};  // see SyncModes::release_all()
  bool released = false;              // may start, in its turn
  bool counts = false;                // its reduction cannot be undone
  bool done = false;
  bool nonfinite = false;

  /// Gives the job, whose values are those of a late gradient, its memory. Its reduction begins with the first step
  /// that needs its result: ranks have agreed on their plan by then.
  void travel_again(const plan::Bucket& of, std::size_t tensors, const LateGradient& late);
};
using SyncJobPtr = std::shared_ptr<SyncJob>;

/// The outer optimizer of a bucket.
class OuterAnchor {
 public:
  /// The parameters as last synchronised, the same on every rank; and the momentum.
  SyncValues parameters = {};
  SyncValues momentum = {};

  [[nodiscard]] bool dropped() const noexcept { return dropped_; }
  /// Whether the anchor was dropped in a step that was delivered.
  [[nodiscard]] bool counts() const noexcept { return counts_; }
  void count() noexcept { counts_ = dropped_; }
  void forget() noexcept { dropped_ = false; }
  /// Drops the anchor, with memory for `bytes`. Returns false if there was one.
  bool drop(std::size_t bytes);
  /// Makes a step of SGD with Nesterov momentum over the mean change.
  void step(const plan::Bucket& bucket, const std::byte* change);

 private:
  bool dropped_ = false;
  bool counts_ = false;
};

/// The last steps that sent some or all of a bucket's residuals since the session was in this world.
struct SentResiduals {
  std::uint64_t some = 0;  // sent by the synchronisation of this step or before it
  std::uint64_t all = 0;
};

class SyncBucket {
 public:
  /// Both must outlive this. `parameters`: by tensor, the parameter and its optimizer state.
  SyncBucket(const plan::Bucket& of, const std::vector<std::vector<View>>& parameters);

  const plan::Bucket& bucket;
  OuterAnchor anchor;
  SentResiduals sent = {};
  bool moved = false;  // a local step has changed parameters since the last synchronisation

  // Guarded by the mutex of SyncModes.
  std::deque<SyncJobPtr> results;  // not delivered, oldest first
  SyncJobPtr flying = nullptr;     // the job that the runner has
  bool ran = false;                // a job has started since the last delivery
  bool had_turn = false;           // in this step
  std::size_t may_lag = 0;         // results that may be missing at the step's end
  std::uint64_t turns = 0;
  bool synced = false;  // its parameters were synchronised in the step that ended
  std::vector<SyncValues> spare = {};

  /// Returns a copy of gradients in `memory_of_values`, which is used again. `undoable`: the
  /// copy counts once its step does, and zeros are written out.
  [[nodiscard]] SyncJobPtr copy_gradients(SyncValues memory_of_values, std::span<const TensorMemory> memory,
                                          const StepInfo& info, std::uint64_t step, bool undoable) const;
  /// Returns a copy of parameters and states, or of the change of parameters.
  [[nodiscard]] SyncJobPtr copy_parameters(SyncValues memory_of_values, const StepInfo& info, std::uint64_t step) const;
  void drop_anchor();
  void deliver_gradients(std::span<const SyncJobPtr> due, std::span<const TensorMemory> memory, double scale,
                         bool replaces) const;
  void deliver_parameters(const SyncJob& job);
  /// Writes to parameters, and to their states if `from` has these.
  void write_parameters(const std::byte* from, std::size_t states) const;

 private:
  void read_parameters(std::size_t which, std::byte* to) const;

  const std::vector<std::vector<View>>& parameters_;
  plan::Bucket average_;  // the bucket that travels if parameters and states are averaged
};

}  // namespace gradwire::session
