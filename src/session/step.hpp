// The steps of a session on one rank: which gradients are ready, what is to be done next, what has ended. A state
// machine without threads, locks, transport or clock: whoever communicates asks next() what to do, does it, and says
// what came of it. session/progress.hpp has the threads and the locks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/faults.hpp"
#include "session/step_info.hpp"
#include "session/sync_schedule.hpp"

namespace gradwire::session {

class Step {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `session`: its number in tickets, from 1.
  Step(std::uint32_t session, Nonfinite nonfinite) : session_(session), nonfinite_(nonfinite) {}

  // Before the first step.
  void add_tensor() { tensors_.emplace_back(); }
  /// Of all tensors that were added. Buckets start in its order.
  void set_plan(const plan::Plan& plan);
  /// Goes on from a saved state.
  void resume(std::uint64_t step, double loss_scale, bool loss_scale_set, bool weighted);
  /// Goes on between steps where `before`, of the same session in another world, was when its step began.
  void go_on_from(const Step& before);

  // Between steps; Error(invalid_argument), which names `call`, where a step is under way.
  void require_between(const char* call) const;
  void flush_next();
  void set_loss_scale(double scale);
  /// From the first step on, or never.
  void set_weight(double samples);
  /// Replays of captured steps have come that far.
  void jump_to(std::uint64_t step);

  // What the caller does.
  /// A micro-step that is not the last one.
  void accumulate(std::uint32_t tensor) { ++tensors_[tensor].micro_steps; }
  /// The first ready() of this step for the tensor. Returns its ticket.
  Ticket ready(std::uint32_t tensor, Time now);
  [[nodiscard]] bool is_ready(std::uint32_t tensor) const { return tensors_[tensor].ready; }
  /// Error(invalid_argument) while the loaded state asks for weights that nobody has given.
  void require_weights() const;
  struct End {
    StepOutcome outcome;
    bool as_usual;              // it was reduced as steps are: not skipped, flushed or captured
    std::uint32_t micro_steps;  // the most of any tensor
  };
  /// Once ended(). `captured`: it runs when the graph does, so that the next one has the same number.
  End end(bool nonfinite, bool captured);

  // What is to be done, by whoever communicates.
  struct Action {
    enum class Kind : std::uint8_t {
      none,
      agree,  // with all ranks on the plan and on weights; then agreed()
      look,   // for NaN and Inf in all gradients, on all ranks; then looked()
      start,  // the bucket, which is under way from here on; then bucket_ended()
    };
    Kind kind = Kind::none;
    std::uint32_t bucket = 0;
    StepInfo info = {};
  };
  /// `waits`: the caller does nothing else until the step has ended, or so.
  [[nodiscard]] Action next(bool waits, Time now);
  void agreed() noexcept { agreed_ = is_to_be_weighted() ? Agreed::weighted : Agreed::unweighted; }
  [[nodiscard]] bool has_agreed() const noexcept { return agreed_ != Agreed::no; }
  /// Not yet, or on steps without weights, before this rank set one.
  [[nodiscard]] bool to_agree() const noexcept {
    return agreed_ == Agreed::no || (agreed_ == Agreed::unweighted && weight_.set);
  }
  /// Ranks with NaN or Inf in a gradient; where there are any the step ends here.
  void looked(std::vector<int> nonfinite_ranks);
  void bucket_ended(std::uint32_t bucket, bool nonfinite);
  /// Whether the step is whole, nothing of it has started, and nothing comes before or beside plain sums. Then all
  /// buckets may start at once; start_all() and end_all() take the place of next() and bucket_ended().
  [[nodiscard]] bool may_start_all() const;
  void start_all() noexcept { next_ = buckets_.size(); }
  void end_all(bool nonfinite);
  [[nodiscard]] bool under_way(std::uint32_t bucket) const { return bucket < next_ && !buckets_[bucket].ended; }
  /// Whether the last bucket of each coming step is held for a caller who waits (StepInfo::InCall).
  void decide_last(bool in_call) noexcept { last_ = {in_call, has_agreed(), last_.ready}; }
  [[nodiscard]] bool last_decided() const noexcept { return last_.decided; }

  // What it looks like from outside.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const StepOutcome& outcome() const noexcept { return outcome_; }
  [[nodiscard]] bool in_step() const noexcept { return ready_ > 0; }
  [[nodiscard]] bool under_way() const noexcept { return !faults.failed() && ended_ < next_; }
  [[nodiscard]] bool ended() const noexcept { return ended_ == buckets_.size(); }
  [[nodiscard]] std::size_t ended_buckets() const noexcept { return ended_; }
  /// Whether next() would say something to a thread that does not wait, or something is under way.
  [[nodiscard]] bool has_work(Time now) const { return to_look() || may_start(false, now) || under_way(); }
  /// Whether something could start, or would but for who asks.
  [[nodiscard]] bool startable() const;
  [[nodiscard]] bool to_look() const;
  /// Whether what starts next is the last of the step.
  [[nodiscard]] bool only_last_left() const { return next_ + 1 == buckets_.size() && !to_look(); }
  [[nodiscard]] bool holds_last() const { return last_.in_call && !weight_.set && next_ + 1 == buckets_.size(); }
  /// Whether this step begins with a look for NaN and Inf: one that carries all residuals must not lose them.
  [[nodiscard]] bool looks_first() const { return skips() || flush_ || modes_.precedes_local_steps(number_); }
  [[nodiscard]] bool weighted() const noexcept { return weight_.set; }
  /// Or will be, since what it goes on from was.
  [[nodiscard]] bool is_to_be_weighted() const noexcept { return weight_.set || weight_.required; }
  [[nodiscard]] bool flushes() const noexcept { return flush_; }
  [[nodiscard]] double loss_scale() const noexcept { return loss_scale_.factor; }
  [[nodiscard]] bool loss_scale_set() const noexcept { return loss_scale_.set; }
  [[nodiscard]] bool stepped() const noexcept { return stepped_; }  // ever
  [[nodiscard]] const SyncSchedule& modes() const noexcept { return modes_; }
  [[nodiscard]] SyncSchedule& modes() noexcept { return modes_; }
  /// Of the coming buckets.
  [[nodiscard]] StepInfo info() const;

  // Tickets.
  [[nodiscard]] bool ended(const Ticket& ticket) const;
  /// Whether its result arrives with finish().
  [[nodiscard]] bool in_mode(const Ticket& ticket) const;
  /// Error(invalid_argument) for a ticket that no ready() of this session has returned so far.
  void check(const char* call, const Ticket& ticket) const;
  /// Error(invalid_argument) where the wait for it would be for ready() calls of the caller itself.
  void check_wait(const Ticket& ticket) const;

  Faults faults;

 private:
  struct Tensor {
    std::uint32_t bucket = 0;
    bool ready = false;
    std::uint32_t micro_steps = 0;  // before the last one
  };
  struct Bucket {
    std::uint32_t tensors = 0;
    std::uint32_t missing = 0;  // tensors that are not ready
    bool ended = false;
  };
  enum class Agreed : std::uint8_t { no, unweighted, weighted };
  struct Last {
    bool in_call = false;
    bool decided = false;  // in_call is known
    Time ready = {};       // when the last bucket to be complete had all its tensors
  };

  void reset();
  [[nodiscard]] bool skips() const {
    return nonfinite_ == Nonfinite::skip || (nonfinite_ == Nonfinite::automatic && loss_scale_.set);
  }
  [[nodiscard]] bool may_start(bool waits, Time now) const;

  std::uint32_t session_;
  Nonfinite nonfinite_;
  std::vector<Tensor> tensors_;
  std::vector<Bucket> buckets_;
  SyncSchedule modes_;
  bool planned_ = false;
  Agreed agreed_ = Agreed::no;
  bool stepped_ = false;

  std::uint64_t number_ = 0;
  struct {
    double factor = 1;
    bool set = false;  // by the caller, ever
  } loss_scale_;
  struct {
    bool set = false;       // by the caller, ever
    bool required = false;  // loaded residuals are in units of weight x gradient
    double value = 1;
  } weight_;
  bool flush_ = false;

  // This step. A bucket is waiting, under way (from next()), or has ended.
  std::size_t ready_ = 0;  // tensors
  std::size_t whole_ = 0;  // buckets of which none is missing
  std::size_t next_ = 0;   // the first bucket that has not started
  std::size_t ended_ = 0;  // buckets; over a device: enqueued
  bool looked_ = false;
  StepOutcome outcome_;
  Last last_;
};

}  // namespace gradwire::session
