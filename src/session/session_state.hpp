// What a session is made of, and what ties these together. `progress` has the locks; what is guarded by which
// stands beside it.
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
#include "session/elastic/elastic.hpp"
#include "session/elastic/standing.hpp"
#include "session/parts.hpp"
#include "session/progress.hpp"
#include "session/runner.hpp"
#include "session/step.hpp"
#include "session/step_comparison.hpp"
#include "session/step_watch.hpp"
#include "session/tables/tables.hpp"
#include "session/tensors.hpp"

namespace gradwire {

namespace session {
class SyncModes;
}

struct Session::State final : private session::Progress::Work {
  State(std::unique_ptr<session::Runner> r, Policy p, SessionOptions o, session::PartTable part_table);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Ends the progress thread; tells the other ranks if a step or an uncaught misuse is left behind.
  ~State();

  const Home home;
  const Policy policy;
  const SessionOptions options;
  const std::unique_ptr<session::Runner> runner;  // guarded by `wire`, but for what any thread may call
  std::atomic<bool> no_sync{false};
  std::atomic<bool> was_captured{false};  // a step was, and may have been replayed since

  // Guarded by `state`. The plan, and what is made with it, stays once it is there. Whoever communicates reads the
  // step's number and loss scale under `wire` alone: they change only between steps, when nothing is under way.
  session::Tensors tensors{*runner};
  session::Step step;
  session::StepWatch watch;
  std::optional<plan::Plan> plan;
  session::Parts parts;                         // what the plan asks for beside reducing
  session::StepComparison comparison{*runner};  // of parts. Guarded by `wire`

  session::Tables tables;  // of the thread that makes steps; what communicates, under `wire`

  // Guarded by `wire`.
  std::optional<session::KnownFiles> known_files;
  std::optional<std::chrono::steady_clock::time_point> busy_since;  // to be counted by the next look
  std::optional<std::uint64_t> decided_for;  // Parts::revision() for which decide_coming() has asked

  // Of checkpoint() and restore(), between steps.
  struct Checkpoints {
    std::filesystem::path directory;  // holds none of a later step
    std::string restored;             // the name there of the one that this session goes on from
    std::future<void> writing;        // the last one; ends before the session does
  } checkpoints;

  // Of finish() alone, on rank 0.
  std::atomic<bool> is_elastic = false;  // as `elastic` says, which a later world takes over while threads end
  std::atomic<bool> left = false;        // no world comes after this one
  std::atomic<bool> told_error = false;  // to those who observe: it gives up once

  // Guarded by `state`.
  bool may_be_small = false;  // the coming steps are small (session::SmallSteps) but for residuals that are held
  bool small = false;         // they are

  session::Progress progress;
  std::optional<StepOutcome> last_outcome;    // of finish() alone
  std::uint64_t sent = 0;                     // the last step that sent residuals: it was not skipped
  std::uint64_t flushed = 0;                  // the last step that sent all residuals, in this world
  bool syncs = false;                         // ranks are in sync_elastically(), or this one makes it with them
  std::optional<double> coming_loss_scale;    // ranks are in set_loss_scale() with it, and reduce late gradients
  std::unique_ptr<session::Elastic> elastic;  // of a session over Processes; ends before what it interrupts

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
  StepOutcome finish();
  void broadcast(std::span<const View> values, int root);
  /// Behind it, once all ranks are known to be there: count_what_travelled().
  void sync_parameters();
  void count_what_travelled();
  /// Both, over Processes.
  static void sync_elastically(std::unique_ptr<State>& self);
  void abort(const std::string& why) noexcept;
  /// Of a session over Processes.
  void confirm();
  void set_loss_scale(double scale);
  void reserve();
  [[nodiscard]] LinkEstimate link();
  std::uint32_t add_table(TableOptions asked);
  /// Behind check_pull(), which throws what is no reason to give up.
  void pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);
  void check_pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);
  [[nodiscard]] SessionStatistics statistics() const;
  /// For whoever observes.
  [[nodiscard]] observe::Snapshot look() const;
  /// For save() and load(). The caller holds `wire`.
  [[nodiscard]] session::SavedState saved_state();
  void restore(const std::vector<session::SavedState>& saved, session::Tables::Loading&& rows,
               const std::string& source);

  // Of a session over Processes: what may replace the state.
  [[nodiscard]] static std::unique_ptr<State> over_processes(std::shared_ptr<Processes> processes,
                                                             session::MakeRunner make, const Policy& policy,
                                                             const SessionOptions& given);
  // `elastic` is moved from only where the call returns.
  [[nodiscard]] static std::unique_ptr<State> in_world(std::unique_ptr<session::Elastic>&& elastic,
                                                       const Policy& policy, const SessionOptions& options,
                                                       const session::PartTable& part_table);
  void tell_of(const WorldChange& change) const;
  void require_between_steps(const char* call);
  [[nodiscard]] static StepOutcome finish_elastically(std::unique_ptr<State>& self);
  /// `call` communicates between steps; it is made again in the next world where it did not end on all ranks.
  /// `check` throws what is no reason to leave; false, on all ranks: nothing is left to be done. `deliver` runs once
  /// the call has ended on all ranks.
  static void call_elastically(
      std::unique_ptr<State>& self, const std::function<bool(State&)>& check, const std::function<void(State&)>& call,
      const std::function<void(State&)>& deliver = [](State&) {});

  /// State::pull() over Processes; false: another world.
  [[nodiscard]] static bool pull_elastically(std::unique_ptr<State>& self, std::uint32_t table,
                                             std::span<const std::uint64_t> ids, std::span<float> rows);

  /// A call of all ranks: of late gradients that could be undone none is left. `coming_loss_scale`: what `call` sets.
  static void reduce_late_gradients(std::unique_ptr<State>& self, const char* call,
                                    std::optional<double> coming_loss_scale = {});

  /// Of a process that is no rank yet: nothing communicates.
  [[nodiscard]] static std::unique_ptr<State> make_waiting_state(std::unique_ptr<session::Elastic>&& elastic,
                                                                 const Policy& policy, const SessionOptions& options);
  /// Session::share(). The first: of ranks, what they have agreed on with the others is left to the caller.
  void let_in_others(std::span<const View> parameters);
  [[nodiscard]] static bool become_rank(std::unique_ptr<State>& self, std::span<const View> parameters);
  /// Error(invalid_argument) on a process that waits to be one.
  void require_rank(const char* call) const;
  /// Error(invalid_argument) where a newcomer would not know of this call.
  void require_nobody_comes(const char* call) const;

  /// The caller holds `state`.
  void make_plan();
  /// `held`: see PartInputs.
  [[nodiscard]] session::PartInputs part_inputs(const session::SavedState* held = nullptr);
  /// The session goes on from `held`, which may need parts that the plan alone does not.
  void make_parts_for(const session::SavedState& held);
  /// What calls are about that are about sync modes alone. Null where there are none.
  [[nodiscard]] session::SyncModes* modes() const;
  /// Throws the session's failure; over Processes only finish() does, and what communicates. The caller holds `state`.
  void throw_if_failed() {
    if (!elastic) {
      step.faults.throw_if_failed();
    }
  }
  /// Error(invalid_argument) while a step is being captured; the session goes on.
  void require_no_capture(const char* call) const;
  /// Replays have advanced the device's step behind the host's back.
  void catch_up_with_replays();
  /// Waits until nothing is in the background; between steps. The caller holds `wire`.
  void drain(const char* call);

 private:
  // Everything of `before`, which is given up, but for the world: tensors, what error feedback holds, the step that was
  // not delivered, or the next one.
  void take_over(State& before);
  // What ranks that are left hold of residuals, and of those that are not what others keep. `held`: what sync modes do.
  [[nodiscard]] exchange::ResidualStore residuals_of(State& before, const session::SavedState& held) const;
  // Waits for the next world and goes on in it; or this rank leaves, with the error.
  static WorldChange change_world(std::unique_ptr<State>& self, const std::optional<Error>& error);
  // Goes on in the world that counts now, or the next one, until all ranks of one hold the same.
  static void enter_world(std::unique_ptr<State>& self);
  void enter_tables();
  // Ranks that came get what the others hold, and rows of tables move. What may be of another rank's end is returned.
  [[nodiscard]] std::optional<Error> teach_newcomers();
  // What it is, beside what sync modes hold: what the caller shares, and parameters that it added.
  [[nodiscard]] std::vector<View> taught() const;
  [[nodiscard]] std::string joiner_requirements();
  [[nodiscard]] session::Standing standing();
  void go_on_from(const session::Standing& others);
  void teach();
  void broadcast_what_is_taught(int teacher);
  void reduce_late_gradients_of(std::ptrdiff_t ranks);
  // The others need not wait for this rank.
  [[noreturn]] void leave(const Error& error);
  /// Of a session that ends; `why` it does in the middle of a step.
  void end_among_others(const std::optional<Error>& why) const noexcept;
  /// From here on this state is of a session over Processes.
  void adopt(std::unique_ptr<session::Elastic>&& made);
  /// This process takes no part in the job any more: by leave() or abort().
  void throw_if_left();

  // Whoever communicates.
  void communicate(std::chrono::microseconds wait, bool waits) override;
  [[nodiscard]] bool in_background() const override {
    return !step.faults.failed() && parts.background() != nullptr && parts.background()->busy();
  }
  [[nodiscard]] bool last_awaits_caller() const override;
  [[nodiscard]] bool all_await_caller() const override { return small; }
  bool start_what_can(bool waits);
  void start(const session::Step::Action& action);
  /// The one fast path: a step of small native sums is made in finish(), on its thread, past schedules, lanes and the
  /// progress thread. Returns whether the step was such a one.
  bool reduce_small();
  /// The caller holds `state`.
  void record_ended(const std::vector<session::Buckets::Ended>& ended);
  void agree_on_plan(bool weighted);
  void look_for_nonfinite();
  /// Inside a catch block; `to_caller`: what it throws reaches the caller of a public function.
  [[noreturn]] void rethrow_given_up(bool to_caller);
  void give_up(const Error& error, bool for_good = false) noexcept;

  void reset_step(session::StepWatch::Time now);
  void check_all_ready();
  void refuse_rows(const TensorInfo& tensor) const;
  void stop_if_gradients_are_gone();

  // The end of a step.
  void exchange_pushes();
  void count_in_tables();
  void commit_step();
  void check_may_finish();
  struct Ended {
    std::chrono::steady_clock::time_point at;
    session::Step::End end;
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
  void see_step_end(session::StepWatch::Time now, double exposed, const Statistics& totals, std::uint32_t micro_steps);
  /// After a step that was reduced as steps are. The caller holds `wire`.
  void decide(std::uint64_t ended_step);
  /// How the coming steps' last bucket is reduced, by what all ranks agreed on, and whether these steps are small:
  /// asked once, where that is `undecided`, and for each other choice of codecs. The caller holds `wire`.
  void decide_coming(bool undecided);
  void look_for_residuals();

  // What travels beside the steps.
  /// What `enqueue` enqueues, given the number of the coming step. It returns whether there is something to wait for.
  void travel_between_steps(const char* call, const std::function<bool(std::uint64_t)>& enqueue);
  /// Whether the bucket's turn is a matter of the background. The caller holds `wire`.
  bool enqueue(const plan::Bucket& bucket, const session::StepInfo& info);
  /// What has come for a bucket may be all that its step waits for. The caller holds `state`.
  void note_arrival(std::uint32_t bucket);
  /// Moves the background, between steps; until nothing is in it. The caller holds `wire`.
  void progress_background();
  void end_what_travels();
  /// At the end of a session: other ranks wait for this one's part of what is in the background.
  void end_background() noexcept;

  // Device memory.
  /// Whether a device has done what a bucket that has ended asked for; the wait for it.
  [[nodiscard]] bool completed(const Ticket& ticket);
  void wait_completed(const Ticket& ticket);
  /// Whether what the caller does now is captured, to be replayed later.
  [[nodiscard]] bool capturing() const;
  void check_capture() const;
  void set_device_step();
  /// Over Processes: what this rank says that it holds must be there. The end of overlap.
  void settle();
};

}  // namespace gradwire
