// What a session knows, and the threads that share it. Two locks: `mutex` guards what ready() and finish() share;
// `wire` is held by whoever communicates. Never take `wire` while holding `mutex`.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/adaptation.hpp"
#include "session/batch_adaptation.hpp"
#include "session/runner.hpp"
#include "session/state_file.hpp"
#include "session/sync_modes.hpp"

namespace gradwire {

struct Session::State {
  State(std::unique_ptr<session::Runner> r, Policy p, SessionOptions o);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Ends the progress thread; tells the other ranks if a step or an uncaught misuse is left behind.
  ~State();

  Policy policy;
  SessionOptions options;
  std::unique_ptr<session::Runner> runner;
  std::thread::id owner;
  std::mutex wire;

  mutable std::mutex mutex;
  std::condition_variable changed;  // for callers
  std::condition_variable work;     // for the progress thread
  std::vector<TensorInfo> tensors;
  std::unordered_set<std::string> taken_names;  // of tensors
  std::vector<View> registered;                 // gradients as added
  std::vector<std::vector<View>> parameters;    // by tensor: the parameter and its optimizer state, where added
  std::vector<session::TensorMemory> memory;    // gradients of this step
  std::vector<bool> is_ready;                   // this step
  std::optional<plan::Plan> plan;
  std::vector<std::uint32_t> missing;  // by bucket: tensors that are not ready
  std::size_t incomplete = 0;          // buckets of which some are missing
  std::vector<bool> has_ended;         // by bucket
  std::size_t next_bucket = 0;         // the first that has not started
  std::size_t ended_buckets = 0;       // of an asynchronous runner: enqueued
  bool agreed = false;                 // on the plan, with all ranks
  bool agreed_on_outer = false;        // on what outer momentum begins with
  bool weighted = false;
  bool must_be_weighted = false;  // loaded residuals are in units of weight x gradient
  double weight = 1;
  std::atomic<bool> no_sync{false};
  bool stopping = false;
  bool driven = false;        // a thread is in drive()
  bool last_settled = false;  // ends_in_call is known
  bool ends_in_call = false;  // this step: its last bucket is held for a caller who waits, for a while
  std::chrono::steady_clock::time_point last_ready;  // when that had all its tensors
  bool looks = false;                                // the progress thread looks for work, and need not be woken
  bool stepped = false;                              // ever
  bool reported = false;                             // the caller knows of the failure
  const std::uint32_t number;                        // in its tickets
  std::uint64_t step = 0;
  double loss_scale = 1;
  bool loss_scale_set = false;
  bool flush_next = false;
  std::optional<session::KnownFiles> known_files;  // guarded by `wire`
  std::atomic<bool> was_captured{false};           // a step was, and may have been replayed since
  bool checked_finite = false;                     // this step, where steps with NaN or Inf are skipped
  StepOutcome outcome;                             // of this step so far
  std::uint64_t counted_steps = 0;
  double exposed_seconds = 0;
  std::unique_ptr<session::Adaptation> adaptation;                  // where the plan has codecs to choose
  std::unique_ptr<session::BatchAdaptation> batch;                  // where the policy has [batch]
  std::unique_ptr<session::SyncModes> modes;                        // where groups have other sync modes than `step`
  std::vector<std::uint32_t> accumulated;                           // by tensor: micro-steps before the last one
  session::StepSeen seen;                                           // of this step so far
  std::optional<std::chrono::steady_clock::time_point> busy_since;  // guarded by `wire`: to be counted by the next look
  session::StepSeen last_seen;                                      // of the step that ended
  std::chrono::steady_clock::time_point step_begun;
  Statistics counted;  // when this step began
  std::optional<Error> failure;
  std::optional<Error> misuse;  // the first one of this rank that no finish() has followed
  std::thread thread;

  /// Runs `call` of the public interface and remembers an Error, so that other ranks can be told why this one is gone.
  template <typename Call>
  auto checked(Call&& call) {
    try {
      return std::forward<Call>(call)();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      if (!misuse) {
        misuse = error;
      }
      throw;
    }
  }

  // The caller holds `mutex`.
  /// The failure itself the first time, then Error(aborted) that quotes it.
  void throw_if_failed();
  void make_plan();
  void reset_step();
  [[nodiscard]] bool startable() const;
  /// The bucket that could start is held for a caller who waits (StepInfo::InCall).
  [[nodiscard]] bool held() const { return ends_in_call && !weighted && next_bucket + 1 == plan->buckets.size(); }
  /// For whoever does not wait: what is held starts all the same when no caller has come for a while.
  [[nodiscard]] bool startable_without_caller() const;
  [[nodiscard]] bool skips() const {
    return options.nonfinite == Nonfinite::skip || (options.nonfinite == Nonfinite::automatic && loss_scale_set);
  }
  /// Whether this step begins with a look for NaN and Inf: one that carries all residuals must not lose them.
  [[nodiscard]] bool checks_first() const { return skips() || flush_next || (modes && modes->settles(step)); }
  /// All is ready and ranks have not yet agreed that it is finite.
  [[nodiscard]] bool to_check() const;
  [[nodiscard]] bool step_ended() const { return ended_buckets == plan->buckets.size(); }
  [[nodiscard]] bool in_step() const;
  [[nodiscard]] bool under_way() const { return plan && !failure && ended_buckets < next_bucket; }
  /// Whether there is something for a progress thread.
  [[nodiscard]] bool has_work() const {
    return startable_without_caller() || under_way() || to_check() || in_background();
  }
  [[nodiscard]] bool all_ready() const { return incomplete == 0; }
  [[nodiscard]] bool ended(const Ticket& ticket) const;
  /// Error(invalid_argument) for a ticket that no ready() of this session has returned so far.
  void check_ticket(const char* call, const Ticket& ticket) const;
  /// Whether the bucket is not as `step` in this step.
  [[nodiscard]] bool in_mode(std::uint32_t bucket) const;
  [[nodiscard]] bool in_background() const { return !failure && modes && modes->busy(); }
  void make_modes();
  /// What has come for a bucket may be all that its step waits for.
  void note_arrival(std::uint32_t bucket);

  /// Whether a device has done what a bucket that has ended asked for; the wait for it.
  [[nodiscard]] bool completed(const Ticket& ticket);
  void wait_completed(const Ticket& ticket);
  /// Returns whether NaN or Inf is known to be in results.
  [[nodiscard]] bool end_device_step();

  /// Whether the bucket's turn is a matter of sync modes. The caller holds `wire`.
  bool take(const plan::Bucket& bucket, session::StepInfo& info);
  /// Moves the background, between steps; until nothing is in it. The caller holds `wire`.
  void progress_background() const;
  void drain(const char* call);
  /// At the end of a session: other ranks wait for this one's part of what is in the background.
  void end_background() noexcept;
  /// Gradients and parameters of a step that has ended; returns whether NaN or Inf is in them.
  [[nodiscard]] bool deliver();
  /// What all ranks hold alike after this step: not gradients of local steps, but parameters that have met.
  [[nodiscard]] std::vector<View> comparable_results() const;
  /// Starts what can start and moves what is under way. The caller holds `wire`. `waits`: it does nothing else until
  /// the step has ended, or so.
  void communicate(std::chrono::microseconds wait, bool waits = false);
  /// Runs `call` under `wire`; whatever it throws ends the session on every rank and leaves as an Error.
  template <typename Call>
  void on_wire(Call&& call) {
    const std::lock_guard lock(wire);
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
  /// Inside a catch block; `to_caller`: what it throws reaches the caller of a public function.
  [[noreturn]] void rethrow_given_up(bool to_caller);
  void give_up(const Error& error) noexcept;

  [[nodiscard]] bool background() const { return options.threading == Threading::background; }
  /// Without a progress thread: whether this thread may progress.
  [[nodiscard]] bool may_communicate() const;
  void require_communication(const char* call) const;
  void progress_inside_call();

  TensorId add(const std::string& text, const View& gradient, std::vector<View> beside, std::uint32_t ndim);
  /// Parameters meet between steps.
  void meet();
  void abort(const std::string& why) noexcept;
  void set_loss_scale(double scale);
  void reserve();
  [[nodiscard]] LinkEstimate link();
  // The caller holds `wire`.
  [[nodiscard]] session::SavedState saved_state();
  void restore(const std::vector<session::SavedState>& saved, const std::string& source);
  /// Takes `call` of the public interface only between steps. The caller holds `mutex`.
  void require_between_steps(const char* call) const;
  /// Whether what the caller does now is captured, to be replayed later.
  [[nodiscard]] bool capturing() const;
  /// Error(invalid_argument) while a step is being captured; the session goes on.
  void require_no_capture(const char* call) const;
  void catch_up_with_replays();
  Ticket set_ready(TensorId id, const View* gradient, bool zero);
  /// Whether anything is decided from what steps took.
  [[nodiscard]] bool adapts() const { return adaptation != nullptr || batch != nullptr; }
  /// Takes note of how long the step took, how much of that in finish(), and what it sent.
  void see_step_end(double exposed);
  /// After a step. `as_usual`: it was reduced as steps are. The caller holds `wire`.
  void adapt(std::uint64_t ended_step, bool as_usual) const;
  /// How the coming step's last bucket is reduced, by what all ranks agreed on. The caller holds `wire`.
  void settle_last_bucket();
  void check_all_ready();
  /// Communicates, or waits for the thread that does, until `reached` (called with `mutex` held).
  template <typename Reached>
  void wait_until(const char* call, Reached&& reached);
  /// Communicates until `stop`, for `eager` after each bucket without sleeping; `lock` is of `mutex`, which is held but
  /// while that goes on. Where nobody drives.
  template <typename Stop>
  void drive(std::unique_lock<std::mutex>& lock, std::chrono::microseconds eager, Stop&& stop);

 private:
  void run() noexcept;  // the progress thread
  void await_work(std::unique_lock<std::mutex>& lock);
  /// finish() is likely to come at once for the last bucket, and reduces it itself.
  [[nodiscard]] bool last_awaits_caller() const;
  void check_finite();
  void check_capture() const;

  void agree_once(bool with_weights);
  void check_id(TensorId id) const;
  void stop_if_gradients_are_gone();
  void check_gradient(std::size_t index, const View& gradient) const;
  void check_parameters(const std::string& text, const View& gradient, const std::vector<View>& beside) const;
  void refuse_rows(const TensorInfo& tensor) const;
  void agree_on_outer(std::uint64_t now);
  static Error no_scale_under_outer();

  static constexpr std::chrono::microseconds kPatience{200};  // of whoever drives, before it looks for new buckets
  // A caller has nothing else to do: for so long it does not sleep between two looks, which would cost a small bucket
  // many times what it takes.
  static constexpr std::chrono::microseconds kEager{1000};
};

template <typename Reached>
void Session::State::wait_until(const char* call, Reached&& reached) {
  if (!background()) {
    require_communication(call);
  }
  std::unique_lock lock(mutex);
  for (;;) {
    throw_if_failed();
    if (reached()) {
      return;
    }
    if (driven) {
      changed.wait(lock);
    } else {
      drive(lock, kEager, [&] { return failure.has_value() || reached(); });
    }
  }
}

template <typename Stop>
void Session::State::drive(std::unique_lock<std::mutex>& lock, std::chrono::microseconds eager, Stop&& stop) {
  using Clock = std::chrono::steady_clock;
  driven = true;
  try {
    std::size_t ended = ended_buckets;
    unsigned looked = 0;
    for (Clock::time_point polite = Clock::now() + eager; !stop();) {
      lock.unlock();
      const bool sleeps = eager.count() == 0 || Clock::now() > polite;
      {
        const std::lock_guard wire_lock(wire);
        communicate(sleeps ? kPatience : std::chrono::microseconds(0), eager.count() > 0);
      }
      if (!sleeps && ++looked % 8 == 0) {
        std::this_thread::yield();
      }
      lock.lock();
      if (ended_buckets != ended) {
        ended = ended_buckets;
        polite = Clock::now() + eager;
      }
    }
  } catch (...) {
    lock.lock();
    driven = false;
    changed.notify_all();
    throw;
  }
  driven = false;
  changed.notify_all();
  if (background() && has_work()) {
    work.notify_all();
  }
}

}  // namespace gradwire
