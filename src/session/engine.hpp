// A session whose world stays as it is: its tensors, its steps, the runner that reduces them and its parts, and what
// ties these together. `progress` has the locks; what is guarded by which stands beside it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/forked.hpp"
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

/// What an engine is made with beside its runner.
struct EngineSettings {
  Policy policy;
  SessionOptions options;
  PartTable parts;
  /// finish() may be undone between its halves. Then only it reports what another rank's end may be behind, and other
  /// calls go on as if the step were to end.
  bool undoable = false;
  /// Who the ranks are, by numbers that outlive this world; none of the world: nobody yet. Unset: 0, 1, and so on.
  std::optional<std::vector<std::uint32_t>> members = {};
  int copies_of_rows = 1;  // of tables, where SessionTableOptions::copies leaves it open
};

struct Engine final : private Progress::Work {
  Engine(std::unique_ptr<Runner> r, EngineSettings given);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// end(), unless it was called.
  ~Engine();

  const Home home;
  const EngineSettings settings;
  const Policy& policy = settings.policy;
  const SessionOptions& options = settings.options;
  const std::unique_ptr<Runner> runner;  // guarded by `wire`, but for what any thread may call
  std::atomic<bool> no_sync{false};
  std::atomic<bool> was_captured{false};  // a step was, and may have been replayed since

  // Guarded by `state`. The plan, and what is made with it, stays once it is there. Whoever communicates reads the
  // step's number and loss scale under `wire` alone: they change only between steps, when nothing is under way.
  Tensors tensors{*runner};
  Step step;
  StepWatch watch;
  std::optional<plan::Plan> plan;
  Parts parts;                         // what the plan asks for beside reducing
  StepComparison comparison{*runner};  // of parts. Guarded by `wire`

  Tables tables;  // of the thread that makes steps; what communicates, under `wire`

  // Guarded by `wire`.
  std::optional<std::chrono::steady_clock::time_point> busy_since;  // to be counted by the next look
  std::optional<std::uint64_t> decided_for;  // Parts::revision() for which decide_coming() has asked

  std::atomic<bool> told_error = false;  // to those who observe: it gives up once

  // Guarded by `state`.
  bool may_be_small = false;  // the coming steps are small (SmallSteps) but for residuals that are held
  bool small = false;         // they are

  Progress progress;
  StepOutcome last_outcome;  // of the last step that was committed
  bool is_over = false;      // by end()

  /// Runs `call` of the public interface and remembers an Error, so that other ranks can be told why this one is gone.
  template <typename Call>
  auto checked(Call&& call) {
    try {
      return std::forward<Call>(call)();
    } catch (const Error& error) {
      const std::lock_guard lock(progress.state);
      step.faults.misused(error);
      throw;
    }
  }
  /// Runs `call` under `wire`; whatever it throws ends the session on every rank and leaves as an Error.
  template <typename Call>
  void on_wire(Call&& call) {
    const std::lock_guard lock(progress.wire);
    or_give_up(std::forward<Call>(call));
  }
  /// The same where the caller holds `wire`.
  template <typename Call>
  void or_give_up(Call&& call) {
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
  /// Both halves, one after the other.
  StepOutcome finish();
  /// What begins with finish(): its results are there, and nothing of the step counts yet.
  struct Finishing {
    std::uint64_t ticks = 0;  // observe::ticks() when it began
    std::chrono::steady_clock::time_point begin = {};
    bool was_small = false;
  };
  [[nodiscard]] Finishing prepare();
  /// The step counts: results are delivered, and what follows from it for the coming ones is decided.
  StepOutcome commit(const Finishing& finishing);
  /// In place of commit(), and for whatever else was under way: `why` ends it on this rank, and what the runner holds
  /// is as at the last commit(). For an engine whose next one takes over.
  void undo(const Error& why);
  void broadcast(std::span<const View> values, int root);
  /// Behind it, once all ranks are known to be there: count_what_travelled().
  void sync_parameters();
  void count_what_travelled();
  void abort(const std::string& why) noexcept;
  void set_loss_scale(double scale);
  void reserve();
  [[nodiscard]] LinkEstimate link();
  std::uint32_t add_table(SessionTableOptions asked);
  /// Behind check_pull(), which throws what is no reason to give up.
  void pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);
  void check_pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);
  [[nodiscard]] SessionStatistics statistics() const;
  /// For whoever observes.
  [[nodiscard]] observe::Snapshot look() const;
  /// For save() and load(). The caller holds `wire`.
  [[nodiscard]] SavedState saved_state();
  void restore(const std::vector<SavedState>& saved, Tables::Loading&& rows, const std::string& source);

  /// For people; `beside` stands between the tables and the parts.
  [[nodiscard]] std::string explain(const std::string& beside = {});
  /// Everything of `before`, an engine of the same session in another world, which has been undone: tensors, tables,
  /// parts, the step that was not delivered, or the next one. `residuals` makes what error feedback goes on from of
  /// what sync modes held. The caller holds the locks of neither.
  void take_over(Engine& before, const std::function<exchange::ResidualStore(const SavedState& held)>& residuals);
  /// Error(invalid_argument), which names `call`, where a step is under way.
  void require_between_steps(const char* call);
  /// Ends the progress thread; tells the other ranks if a step or an uncaught misuse is left behind. Returns why they
  /// were told that, if they were.
  std::optional<Error> end() noexcept;

  /// The caller holds `state`.
  void make_plan();
  /// `held`: see PartInputs.
  [[nodiscard]] PartInputs part_inputs(const SavedState* held = nullptr);
  /// The session goes on from `held`, which may need parts that the plan alone does not.
  void make_parts_for(const SavedState& held);
  /// What calls are about that are about sync modes alone. Null where there are none.
  [[nodiscard]] SyncModes* modes() const;
  /// Throws the session's failure where calls beside finish() report it. The caller holds `state`.
  void throw_if_failed() {
    if (!settings.undoable) {
      step.faults.throw_if_failed();
    }
  }
  /// Whether the step is void, which finish() says alone. The caller holds `state`.
  [[nodiscard]] bool is_void() const { return settings.undoable && step.faults.failed(); }
  /// Whether finish() says it in place of a call that has thrown `error`.
  [[nodiscard]] bool leaves_to_finish(const Error& error) const {
    return settings.undoable && may_be_peer_failure(error.code());
  }
  /// Error(invalid_argument) while a step is being captured; the session goes on.
  void require_no_capture(const char* call) const;
  /// Replays have advanced the device's step behind the host's back.
  void catch_up_with_replays();
  /// Waits until nothing is in the background; between steps. The caller holds `wire`.
  void drain(const char* call);

  // For whoever leads from one world to the next.
  /// The caller holds `wire`.
  void agree_on_plan(bool weighted);
  /// `for_good`: no engine takes over.
  void give_up(const Error& error, bool for_good = false) noexcept;
  void enter_tables();
  void set_device_step();
  /// What this rank says that it holds must be there. The end of overlap.
  void settle();
  void reset_step(StepWatch::Time now);
  /// What `enqueue` enqueues, given the number of the coming step. It returns whether there is something to wait for.
  void travel_between_steps(const char* call, const std::function<bool(std::uint64_t)>& enqueue);
  /// The caller holds `wire`.
  void end_what_travels();

 private:
  // Whoever communicates.
  void communicate(std::chrono::microseconds wait, bool waits) override;
  [[nodiscard]] bool in_background() const override {
    return !step.faults.failed() && parts.background() != nullptr && parts.background()->busy();
  }
  [[nodiscard]] bool last_awaits_caller() const override;
  [[nodiscard]] bool all_await_caller() const override { return small; }
  bool start_what_can(bool waits);
  void start(const Step::Action& action);
  /// The one fast path: a step of small native sums is made in finish(), on its thread, past schedules, lanes and the
  /// progress thread. Returns whether the step was such a one.
  bool reduce_small();
  /// The caller holds `state`.
  void record_ended(const std::vector<Buckets::Ended>& ended);
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
  /// Of a step whose results are there, since `begin` in finish().
  [[nodiscard]] Ended end_step(std::chrono::steady_clock::time_point begin, bool was_small);
  /// What ranks do together at the end of some steps, and what follows from it for the coming ones.
  void conclude(const Ended& ended);
  [[nodiscard]] bool compares_results(const StepOutcome& outcome) const;
  /// Gradients and parameters of a step that has ended; returns whether NaN or Inf is in them.
  [[nodiscard]] bool deliver();
  /// Returns whether NaN or Inf is known to be in results.
  [[nodiscard]] bool end_device_step();
  /// What all ranks hold alike after this step: not gradients of local steps, but parameters that were synchronised.
  /// The caller holds `state`.
  [[nodiscard]] std::vector<View> comparable_results() const;
  /// The caller holds `state`.
  void see_step_end(StepWatch::Time now, double exposed, const Statistics& totals, std::uint32_t micro_steps);
  /// After a step that was reduced as steps are. The caller holds `wire`.
  void decide(std::uint64_t ended_step);
  /// How the coming steps' last bucket is reduced, by what all ranks agreed on, and whether these steps are small:
  /// asked once, where that is `undecided`, and for each other choice of codecs. The caller holds `wire`.
  void decide_coming(bool undecided);
  void look_for_residuals();

  // What travels beside the steps.
  /// Whether the bucket's turn is a matter of the background. The caller holds `wire`.
  bool enqueue(const plan::Bucket& bucket, const StepInfo& info);
  /// What has come for a bucket may be all that its step waits for. The caller holds `state`.
  void note_arrival(std::uint32_t bucket);
  /// Moves the background, between steps; until nothing is in it. The caller holds `wire`.
  void progress_background();
  /// At the end of a session: other ranks wait for this one's part of what is in the background.
  void end_background() noexcept;

  // Device memory.
  /// Whether a device has done what a bucket that has ended asked for; the wait for it.
  [[nodiscard]] bool completed(const Ticket& ticket);
  void wait_completed(const Ticket& ticket);
  /// Whether what the caller does now is captured, to be replayed later.
  [[nodiscard]] bool capturing() const;
  void check_capture() const;
};

}  // namespace gradwire::session
