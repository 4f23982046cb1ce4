// Handles groups that are not reduced at every step. A bucket of such a group is *enqueued* in its turn: its values (a
// gradient, parameters and state, or the change since they were synchronised) are copied, so that the caller may go on
// with the original, and reduced in the background, one copy of a bucket at a time. finish() *delivers* results: to the
// gradient some steps later, or to the parameters in the step in which they are synchronised. Until its results are
// delivered, a step has changed nothing but residuals that save() would write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/dtype.hpp"
#include "plan/plan.hpp"
#include "session/parts/sync_modes/sync_bucket.hpp"
#include "session/runner/runner.hpp"
#include "session/state/state_file.hpp"
#include "session/step/sync_schedule.hpp"

namespace gradwire::session {

class SyncModes {
 public:
  /// `parameters`: by tensor, the parameter and its optimizer state. All must outlive this. `undoable`: a step may be
  /// undone, and with it the reductions that do not count yet. There are few of these then, see release_due().
  SyncModes(const plan::Plan& plan, const SyncSchedule& schedule, const std::vector<std::vector<View>>& parameters,
            bool undoable);

  // For the threads that communicate, one at a time.
  /// Enqueues the bucket, after anchors have been dropped. Returns false if it is reduced in this step as under mode
  /// `step`. `scale`: the loss scale.
  bool enqueue(const plan::Bucket& bucket, std::span<const TensorMemory> memory, const StepInfo& info,
               std::uint64_t step, double scale);
  /// Between steps: enqueues all parameters that local steps have moved since the last synchronisation; exactly, with
  /// all residuals. Returns whether there are any. deliver() follows.
  bool enqueue_all_parameters(std::uint64_t step);
  /// Between steps: releases the late gradients that have not begun to travel, if they wait for their step (undoable).
  /// `weight`: the weight of this rank's gradients, if ranks have given no weights of their own; without it, they count
  /// as those of all other ranks.
  void release_all(std::optional<double> weight = {});
  /// Counts the released jobs, since all ranks know that all have reduced them. `step`: the coming one.
  void released_count(std::uint64_t step);
  /// Starts the jobs that may start, in the order of enqueue(), which is the same on every rank.
  void start(Buckets& buckets);
  void ended(const Buckets::Ended& ended);
  /// Whether a bucket under outer momentum begins with local steps in this step. Its anchor is dropped before the first
  /// enqueue(), from parameters that are the same on every rank.
  [[nodiscard]] bool begins_outer(std::uint64_t step) const;
  void drop_anchors(std::uint64_t step);

  // Any thread may call these.
  /// Whether the bucket had its turn and all results that are due in this step have arrived.
  [[nodiscard]] bool arrived(std::uint32_t bucket) const;
  [[nodiscard]] bool busy() const;
  /// Whether there are late gradients whose reduction could still be undone. The answer is the same on every rank.
  [[nodiscard]] bool has_uncounted() const;
  [[nodiscard]] std::vector<Lateness> ages() const;  // by the plan's groups
  void reset_ages();
  /// Whether the bucket's parameters were synchronised in the step that deliver() ended.
  [[nodiscard]] bool synced(std::uint32_t bucket) const;

  /// At the end of a step that was not skipped, when all results have arrived: writes to gradients and parameters;
  /// between steps, where `memory` is empty, to parameters. Returns whether a result has NaN or Inf.
  bool deliver(std::span<const TensorMemory> memory, double scale);

  /// Returns a hash of the parameters, or later of the anchors, of all buckets that are or will be under outer
  /// momentum.
  [[nodiscard]] std::uint64_t outer_hash() const;
  [[nodiscard]] bool has_outer() const;

  // Between steps, while nothing is busy() or after it was given up; `step` is the coming one. The schedule has been
  // loaded.
  /// Whether save() writes the values. In a step that was not delivered, it saves the state before the step.
  enum class Values : std::uint8_t { saved, left_out };
  [[nodiscard]] SavedSyncModes save(std::uint64_t step, Values values = Values::saved) const;
  void load(const SavedSyncModes& saved, std::uint64_t step);

  // For a rank that joins later, between steps, once it has loaded a state without values.
  /// Returns the memory of the values that are the same on every rank: anchors, outer momentum, and results that are
  /// not delivered.
  [[nodiscard]] std::vector<View> alike();
  /// Sets parameters to the anchors: a newcomer has changed nothing since the last synchronisation.
  void go_to_anchors();
  /// Whether local steps have moved parameters since the last synchronisation. The answer is the same on every rank.
  [[nodiscard]] bool have_moved() const;

  using Sent = SentResiduals;
  /// Returns the last steps that sent the bucket's residuals. `by_steps`: those of a bucket that is under `step` in
  /// this step.
  [[nodiscard]] Sent sent(std::uint32_t bucket, std::uint64_t step, Sent by_steps) const;

 private:
  /// Returns memory that the bucket has used before, or none.
  [[nodiscard]] SyncValues take_spare_memory(SyncBucket& bucket);
  [[nodiscard]] std::vector<SavedLocalSteps> local_steps() const;
  void add(SyncBucket& entry, const SyncJobPtr& job, std::size_t may_lag);
  void release(const SyncJobPtr& job) REQUIRES(mutex_);
  // Releases all jobs that a step waits for, if `may_lag` jobs may be missing at its end. If steps can be undone, it
  // releases no more, so that every job that has begun counts once that step does.
  void release_due(SyncBucket& entry, std::size_t may_lag) REQUIRES(mutex_);

  const plan::Plan& plan_;
  const SyncSchedule& schedule_;
  const std::vector<std::vector<View>>& parameters_;
  const bool undoable_;
  std::vector<SyncBucket> entries_;  // by bucket
  mutable Mutex mutex_;              // also guards an entry's results, flying, had_turn, may_lag, turns and spare
  std::deque<SyncJobPtr> waiting_ GUARDED_BY(mutex_);  // not started
  std::vector<Lateness> ages_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::session
