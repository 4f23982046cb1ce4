// An engine is the session of one world: its tensors, its steps, the runner that reduces them, and its parts.
// `progress` has the two locks, `state` and `wire`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/agreements.hpp"
#include "session/checkpoint/state_file.hpp"
#include "session/parts.hpp"
#include "session/progress.hpp"
#include "session/runner.hpp"
#include "session/step.hpp"
#include "session/step_comparison.hpp"
#include "session/step_watch.hpp"
#include "session/tables/tables.hpp"
#include "session/tensors.hpp"

namespace gradwire::session {

class SyncModes;

/// The arguments of an engine's constructor, beside its runner.
struct EngineSettings {
  Policy policy;
  SessionOptions options;
  PartTable parts;
  /// The caller may undo a step between the two halves of finish(). Only finish() then reports an error that the end of
  /// another rank may have caused; other calls behave as if the step were going to end.
  bool undoable = false;
  /// The ranks, by numbers that stay the same in the next world; empty for a process that is in no world yet. If unset,
  /// ranks are numbered 0, 1, and so on.
  std::optional<std::vector<std::uint32_t>> members = {};
  int copies_of_rows = 1;  // used for tables whose SessionTableOptions::copies is 0
};

struct Engine final : private Progress::Work {
  Engine(std::unique_ptr<Runner> r, EngineSettings given);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Calls end() unless the caller did.
  ~Engine();

  const EngineSettings settings;
  const Policy& policy = settings.policy;
  const SessionOptions& options = settings.options;
  const std::unique_ptr<Runner> runner;  // guarded by `wire`, but for what any thread may call
  std::atomic<bool> no_sync{false};
  std::atomic<bool> was_captured{false};  // a step was, and may have been replayed since

  // Written under `state`. The plan, and what is made with it, stays once it is there.
  Tensors tensors{*runner};
  Step step GUARDED_BY(progress.state);
  StepWatch watch GUARDED_BY(progress.state);
  std::optional<plan::Plan> plan;
  Parts parts;
  StepComparison comparison{*runner};  // between the parts of all ranks; used under `wire`, but for its counts

  Tables tables;  // only the thread that makes steps uses it, and holds `wire` to communicate

  // The next communicate() counts the time since then.
  std::optional<std::chrono::steady_clock::time_point> busy_since GUARDED_BY(progress.wire);
  // The Parts::revision() that decide_coming() last decided for.
  std::optional<std::uint64_t> decided_for GUARDED_BY(progress.wire);

  std::atomic<bool> told_error = false;  // the event of an error has been recorded; a session gives up once

  // Written under both locks, read under either.
  bool may_be_small = false;  // the coming steps are small (SmallSteps), unless there are residuals to add
  bool small = false;         // the coming steps are small

  Progress progress;
  // Only the thread that makes steps uses these.
  StepOutcome last_outcome;  // the outcome of the last step that was committed
  bool is_over = false;      // end() was called

  /// The step for the thread that makes steps, and for one that communicates, under `wire`. They read what changes only
  /// between steps, when nothing is under way, such as its number and the loss scale.
  [[nodiscard]] const Step& settled_step() const NO_THREAD_SAFETY_ANALYSIS { return step; }

  /// Runs `call` of the public interface and remembers an Error, so that other ranks can be told why this one is gone.
  template <typename Call>
  auto checked(Call&& call) {
    try {
      return std::forward<Call>(call)();
    } catch (const Error& error) {
      const MutexLock lock(progress.state);
      step.faults.misused(error);
      throw;
    }
  }
  /// Runs `call` under `wire`; whatever it throws ends the session on every rank and leaves as an Error.
  template <typename Call>
  void on_wire(Call&& call) {
    const MutexLock lock(progress.wire);
    or_give_up(std::forward<Call>(call));
  }
  /// The same where the caller has taken `wire`.
  template <typename Call>
  void or_give_up(Call&& call) REQUIRES(progress.wire) {
    try {
      std::forward<Call>(call)();
    } catch (...) {
      rethrow_given_up(true);
    }
  }

  // Calls of the public interface.
  TensorId add(const std::string& name, const View& gradient, std::vector<View> beside, std::uint32_t ndim,
               std::span<const float> scale = {});
  Ticket ready(TensorId id, const View* gradient, bool zero);
  [[nodiscard]] bool done(const Ticket& ticket);
  void wait(const Ticket& ticket);
  /// prepare() and commit().
  StepOutcome finish();
  /// What prepare() tells commit().
  struct Finishing {
    std::uint64_t ticks = 0;  // observe::ticks() when it began
    std::chrono::steady_clock::time_point begin = {};
    bool was_small = false;
  };
  /// Reduces all that is left of the step. Nothing of the step counts yet.
  [[nodiscard]] Finishing prepare();
  /// Makes the step count: delivers its results and decides how the coming steps are reduced.
  StepOutcome commit(const Finishing& finishing);
  /// Abandons the step, and any other communication, with the error `why`, and restores the residuals of the last
  /// commit(). Afterwards only the take_over() of another engine may follow.
  void undo(const Error& why);
  void broadcast(std::span<const View> values, int root);
  /// Must be followed by count_what_travelled() once all ranks are known to have finished it.
  void sync_parameters();
  void count_what_travelled();
  void abort(const std::string& why) noexcept;
  void set_loss_scale(double scale);
  void reserve();
  [[nodiscard]] LinkEstimate link();
  std::uint32_t add_table(SessionTableOptions asked);
  /// Must follow check_pull(), which throws for bad arguments without ending the session.
  void pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);
  void check_pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);
  [[nodiscard]] SessionStatistics statistics() const;
  /// A snapshot for metrics and histories.
  [[nodiscard]] observe::Snapshot look() const;
  /// The state that save() writes, and the way back.
  [[nodiscard]] SavedState saved_state() REQUIRES(progress.wire);
  void restore(const std::vector<SavedState>& saved, Tables::Loading&& rows, const std::string& source)
      REQUIRES(progress.wire);

  /// The text of Session::explain(). `beside` is inserted between the tables and the parts.
  [[nodiscard]] std::string explain(const std::string& beside = {});
  /// Continues where `before` was, the engine of the same session in the previous world, after its undo(): with its
  /// tensors, tables and parts, at the step that was not committed. `residuals` returns the residuals to start with,
  /// given what sync modes hand over. Takes the locks of both engines.
  void take_over(Engine& before, const std::function<exchange::ResidualStore(const SavedState& held)>& residuals);
  /// Throws Error(invalid_argument), which names `call`, if a step is under way.
  void require_between_steps(const char* call);
  /// Stops the progress thread. If a step is unfinished or a call has failed, it tells the other ranks, and returns
  /// what it told them.
  std::optional<Error> end() noexcept;

  void make_plan() REQUIRES(progress.state);
  /// `held` becomes PartInputs::held.
  [[nodiscard]] PartInputs part_inputs(const SavedState* held = nullptr) REQUIRES(progress.state);
  /// Makes parts that the loaded state `held` needs although the plan does not ask for them.
  void make_parts_for(const SavedState& held) REQUIRES(progress.state);
  /// Null if the session has no sync mode other than "step".
  [[nodiscard]] SyncModes* modes() const;
  /// Throws the session's failure, unless only finish() reports it.
  void throw_if_failed() REQUIRES(progress.state) {
    if (!settings.undoable) {
      step.faults.throw_if_failed();
    }
  }
  [[nodiscard]] bool failed() const {
    const MutexLock lock(progress.state);
    return step.faults.failed();
  }
  /// Whether the step has failed and only finish() reports that.
  [[nodiscard]] bool is_void() const REQUIRES(progress.state) { return settings.undoable && step.faults.failed(); }
  /// Whether finish() reports `error`, so that the call that caught it returns normally.
  [[nodiscard]] bool leaves_to_finish(const Error& error) const {
    return settings.undoable && may_be_peer_failure(error.code());
  }
  /// Error(invalid_argument) while a step is being captured; the session goes on.
  void require_no_capture(const char* call) const;
  /// Replays have advanced the device's step behind the host's back.
  void catch_up_with_replays();
  /// Waits until nothing is in the background; between steps.
  void drain(const char* call) REQUIRES(progress.wire);

  // A wrapper that owns one engine for each world calls these, too.
  void agree_on_plan(bool weighted) REQUIRES(progress.wire);
  /// Ends the session on this rank. With `for_good` no other engine takes over.
  void give_up(const Error& error, bool for_good = false) noexcept;
  void enter_tables();
  void set_device_step() REQUIRES(progress.state);
  /// Waits for the device, so that this rank really holds the results that it says it holds.
  void settle();
  void reset_step(StepWatch::Time now) REQUIRES(progress.state);
  /// Lets `enqueue` hand work to the background between two steps, and waits for it. `enqueue` gets the number of the
  /// coming step and returns whether there is something to wait for.
  void travel_between_steps(const char* call, const std::function<bool(std::uint64_t)>& enqueue);
  void end_what_travels() REQUIRES(progress.wire);

 private:
  // Whoever communicates.
  void communicate(std::chrono::microseconds wait, bool waits) override REQUIRES(progress.wire);
  [[nodiscard]] bool in_background() const override REQUIRES(progress.state) {
    return !step.faults.failed() && parts.background() != nullptr && parts.background()->busy();
  }
  [[nodiscard]] bool last_awaits_caller() const override REQUIRES(progress.state);
  [[nodiscard]] bool all_await_caller() const override { return small; }
  bool start_what_can(bool waits) REQUIRES(progress.wire);
  void start(const Step::Action& action) REQUIRES(progress.wire);
  /// The one fast path: a step of small native sums is made in finish(), on its thread, past schedules, lanes and the
  /// progress thread. Returns whether the step was such a one.
  bool reduce_small();
  void record_ended(const std::vector<Buckets::Ended>& ended) REQUIRES(progress.state);
  void look_for_nonfinite();
  /// Inside a catch block; `to_caller`: what it throws reaches the caller of a public function.
  [[noreturn]] void rethrow_given_up(bool to_caller);

  void check_all_ready();
  void refuse_rows(const TensorInfo& tensor) const;
  void stop_if_gradients_are_gone();

  // The end of a step.
  void exchange_pushes();
  void count_in_tables();
  void check_may_finish();
  struct Ended {
    std::chrono::steady_clock::time_point at;
    Step::End end;
    std::vector<View> results;  // where ranks compare them
    bool undecided = false;     // how coming steps travel
    bool may_get_small = false;
  };
  /// Ends a step whose results have arrived; finish() began at `begin`.
  [[nodiscard]] Ended end_step(std::chrono::steady_clock::time_point begin, bool was_small);
  /// What ranks do together at the end of some steps, and what follows from it for the coming ones.
  void conclude(const Ended& ended);
  [[nodiscard]] bool compares_results(const StepOutcome& outcome) const;
  /// The last step, for the thread in finish(), which alone writes it.
  [[nodiscard]] const StepSeen& last_seen() const NO_THREAD_SAFETY_ANALYSIS { return watch.last(); }
  /// Gradients and parameters of a step that has ended; returns whether NaN or Inf is in them.
  [[nodiscard]] bool deliver();
  /// Returns whether NaN or Inf is known to be in results.
  [[nodiscard]] bool end_device_step();
  /// What all ranks hold alike after this step: not gradients of local steps, but parameters that were synchronised.
  [[nodiscard]] std::vector<View> comparable_results() const REQUIRES(progress.state);
  void see_step_end(StepWatch::Time now, double exposed, const Statistics& totals, std::uint32_t micro_steps)
      REQUIRES(progress.state);
  /// Decides how the last bucket of the coming steps is reduced, and whether these steps are small. It asks the runner
  /// only if that is `undecided` or if codecs were chosen anew.
  void decide_coming(bool undecided) REQUIRES(progress.wire);
  void look_for_residuals();

  // What travels beside the steps.
  /// Offers the bucket to the part that reduces in the background; returns whether the part took it.
  bool enqueue(const plan::Bucket& bucket, const StepInfo& info) REQUIRES(progress.wire);
  /// Ends the bucket if this was the last arrival that its step waits for.
  void note_arrival(std::uint32_t bucket) REQUIRES(progress.state);
  /// Moves background work forward once, between steps.
  void progress_background() REQUIRES(progress.wire);
  /// Finishes background work when the session ends, because other ranks wait for this rank's share of it.
  void end_background() noexcept;

  // Device memory.
  /// Whether a device has done what a bucket that has ended asked for; the wait for it.
  [[nodiscard]] bool completed(const Ticket& ticket);
  void wait_completed(const Ticket& ticket);
  /// Whether what the caller does now is captured, to be replayed later.
  [[nodiscard]] bool capturing() const;
  void check_capture() const REQUIRES(progress.state);
};

}  // namespace gradwire::session
