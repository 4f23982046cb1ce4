// What a session does for groups that are not reduced at every step. A bucket of such a group is *enqueued* in its
// turn: what is to travel (a gradient, parameters and state, or the change since they were synchronised) is copied, so
// that the caller may go on with the original, and reduced in the background, one copy of a bucket at a time. What has
// come back is *delivered* by finish(): to the gradient some steps later, or to the parameters in the step in which
// they are synchronised. Until it is delivered, a step has changed nothing but residuals that save() would tell of.
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
#include "session/runner/runner.hpp"
#include "session/state/state_file.hpp"
#include "session/step/sync_schedule.hpp"

namespace gradwire::session {

class SyncModes {
 public:
  /// `parameters`: by tensor, the parameter and its optimizer state. All must outlive this. `undoable`: a step may be
  /// undone, and with it reductions that do not count yet. These are few then, see release_due().
  SyncModes(const plan::Plan& plan, const SyncSchedule& schedule, const std::vector<std::vector<View>>& parameters,
            bool undoable);

  // For whoever communicates, one thread at a time.
  /// False: this step of the bucket is as any other of mode `step`. `scale`: the loss scale. Anchors have been dropped.
  bool enqueue(const plan::Bucket& bucket, std::span<const TensorMemory> memory, const StepInfo& info,
               std::uint64_t step, double scale);
  /// Between steps: all parameters that local steps have moved since the last synchronisation; exactly, with all
  /// residuals. Returns whether there are any. deliver() follows.
  bool enqueue_all_parameters(std::uint64_t step);
  /// Between steps: the late gradients that have not begun to travel, where they wait for their step (undoable).
  /// `weight`: what this rank's count, where ranks have given no weights of their own; none: as all others'.
  void release_all(std::optional<double> weight = {});
  /// All ranks know that what was released has been reduced on all of them. `step`: the coming one.
  void released_count(std::uint64_t step);
  /// Starts what may start, in the order of enqueue(), which is the same on every rank.
  void start(Buckets& buckets);
  void ended(const Buckets::Ended& ended);
  /// Whether a bucket under outer momentum begins with local steps in this one. Its anchor is dropped before the first
  /// enqueue(), from parameters that are the same on every rank.
  [[nodiscard]] bool begins_outer(std::uint64_t step) const;
  void drop_anchors(std::uint64_t step);

  // Any thread.
  /// Whether the bucket had its turn and all that is due in this step has come.
  [[nodiscard]] bool arrived(std::uint32_t bucket) const;
  [[nodiscard]] bool busy() const;
  /// Whether there are late gradients the reduction of which could be undone yet. The same on every rank.
  [[nodiscard]] bool has_uncounted() const;
  [[nodiscard]] std::vector<Lateness> ages() const;  // by group of the plan
  void reset_ages();
  /// Whether the bucket's parameters were synchronised in the step that deliver() ended.
  [[nodiscard]] bool synced(std::uint32_t bucket) const;

  /// At the end of a step that was not skipped, when all has arrived: writes to gradients and parameters; between
  /// steps, where `memory` is empty, to parameters. Returns whether NaN or Inf was in it.
  bool deliver(std::span<const TensorMemory> memory, double scale);

  /// Hash of the parameters, or later of the anchors, of what is or will be under outer momentum.
  [[nodiscard]] std::uint64_t outer_hash() const;
  [[nodiscard]] bool has_outer() const;

  // Between steps, while not busy(), or given up. The schedule has been loaded.
  /// In a step that was not delivered: as before it.
  enum class Values : std::uint8_t { saved, left_out };
  void save(SavedState& state, Values values = Values::saved) const;
  void load(const SavedState& state);

  // Of a rank that comes later, between steps, once it has loaded a state of which values were left out.
  /// Where those values are that are the same on every rank: anchors and outer momentum, results not delivered.
  [[nodiscard]] std::vector<View> alike();
  /// Sets parameters to them: a newcomer has changed nothing since the last synchronisation.
  void go_to_anchors();
  /// Whether local steps have moved parameters since the last synchronisation. The same on every rank.
  [[nodiscard]] bool have_moved() const;

  /// What has been sent of a bucket's residuals since the session was in this world.
  struct Sent {
    std::uint64_t some = 0;  // by the synchronisation of this step, or before it
    std::uint64_t all = 0;
  };
  /// `by_steps`: of a bucket that is as under `step` in this step.
  [[nodiscard]] Sent sent(std::uint32_t bucket, std::uint64_t step, Sent by_steps) const;

 private:
  struct Job {
    std::uint32_t bucket = 0;
    bool of_parameters = false;  // else of gradients
    const plan::Bucket* travels = nullptr;
    StepInfo info;
    std::uint64_t step = 0;
    double scale = 1;
    std::uint64_t turn = 0;         // of the bucket, counted
    std::vector<std::byte> values;  // in the order of `travels`
    std::vector<TensorMemory> memory = {};
    std::vector<std::byte> input = {};  // values as they were; where undoable, from its start until it counts
    std::optional<double> weight = {};  // see release_all()
    bool released = false;              // may start, in its turn
    bool counts = false;                // it is not undone any more
    bool done = false;
    bool nonfinite = false;
  };
  using JobPtr = std::shared_ptr<Job>;
  struct Entry {
    const plan::Bucket* bucket = nullptr;
    plan::Bucket average;        // what travels where parameters and state are averaged
    std::deque<JobPtr> results;  // not delivered, oldest first
    JobPtr flying = nullptr;     // what the runner has
    bool ran = false;            // it had something since what is delivered was
    bool had_turn = false;       // in this step
    std::size_t may_lag = 0;     // results that may be missing at its end
    std::uint64_t turns = 0;
    bool moved = false;   // by a local step since the last synchronisation
    bool synced = false;  // in the step that ended
    bool anchored = false;
    bool anchor_counts = false;  // it was dropped in a step that was delivered
    Sent sent = {};
    std::vector<std::byte> anchor = {};    // parameters when last synchronised, the same on every rank
    std::vector<std::byte> momentum = {};  // of the outer optimizer
    std::vector<std::vector<std::byte>> spare = {};
  };

  [[nodiscard]] JobPtr new_job(Entry& entry, const plan::Bucket& travels, const StepInfo& info, std::uint64_t step);
  [[nodiscard]] JobPtr gradients(Entry& entry, std::span<const TensorMemory> memory, const StepInfo& info,
                                 std::uint64_t step);
  [[nodiscard]] JobPtr parameters(Entry& entry, const StepInfo& info, std::uint64_t step);
  [[nodiscard]] std::vector<SavedState::LocalSteps> local_steps() const;
  void travel_again(Job& job, const plan::Bucket& bucket, const SavedState::Late& late);
  void drop_anchor(Entry& entry) const;
  void add(Entry& entry, const JobPtr& job, std::size_t may_lag);
  void release(const JobPtr& job) REQUIRES(mutex_);
  // All that a step waits for at whose end so many may be missing. Where undoable no more, so that whatever has begun
  // counts once that step does.
  void release_due(Entry& entry, std::size_t may_lag) REQUIRES(mutex_);
  void copy_parameters(const plan::Bucket& bucket, std::size_t which, std::byte* to) const;

  static void deliver_gradients(const Entry& entry, std::span<const JobPtr> due, std::span<const TensorMemory> memory,
                                double scale, bool replaces);
  void deliver_parameters(Entry& entry, const Job& job) const;
  // To parameters and, where `from` has them, their states.
  void write_parameters(const plan::Bucket& bucket, const std::byte* from, std::size_t states) const;

  const plan::Plan& plan_;
  const SyncSchedule& schedule_;
  const std::vector<std::vector<View>>& parameters_;
  const bool undoable_;
  std::vector<Entry> entries_;  // by bucket
  mutable Mutex mutex_;         // also of an entry's results, flying, had_turn, may_lag, turns and spare
  std::deque<JobPtr> waiting_ GUARDED_BY(mutex_);  // not started
  std::vector<Lateness> ages_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::session
