// Each ability of a session beside reducing gradients is a part. A part owns its state, which ends with the world: when
// ranks end or join, the session of the next world makes its parts anew. The session makes the parts that its plan asks
// for, in the order of a table, and drives them through the interfaces below. A step calls only the parts that
// implement an interface, and knows none by its type; a public call that is about one part finds it by type.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/session.hpp"
#include "gradwire/step.hpp"
#include "observe/sources.hpp"
#include "plan/plan.hpp"
#include "session/part/step_comparison.hpp"
#include "session/runner/runner.hpp"
#include "session/state/saved_state.hpp"
#include "session/step/step_watch.hpp"
#include "session/step/sync_schedule.hpp"
#include "session/tensors/tensors.hpp"

namespace gradwire::session {

/// A part that decides how coming steps are reduced, from its measurements of earlier steps. It decides the same on
/// every rank.
class Tuner {
 public:
  /// Sets its fields of `info`, with which every bucket of the step `info.step` starts.
  virtual void tune(StepInfo& info) const = 0;
  /// Whether the part looks at each bucket of this step. Such a step is not made as a small one.
  [[nodiscard]] virtual bool looks_at_buckets(std::uint64_t /*step*/) const { return false; }
  /// A bucket of `step` has ended.
  virtual void bucket_ended(std::uint64_t step, const Buckets::Ended& bucket) = 0;
  /// `step` has ended and was neither skipped, flushed nor captured.
  virtual void step_ended(std::uint64_t step, const StepSeen& seen) = 0;
  /// A number that changes whenever coming steps may be reduced in another way.
  [[nodiscard]] virtual std::uint64_t revision() const noexcept { return 0; }

 protected:
  ~Tuner() = default;
};

/// A part that takes buckets in place of the runner, reduces them beside the steps, and delivers their results at the
/// end of some step. A session has one at most.
class Background {
 public:
  // The thread that communicates calls these.
  /// Called before a bucket of `step` starts, after ranks have agreed on the plan. Collective.
  virtual void before_bucket(std::uint64_t step) = 0;
  /// Takes the bucket's values. False means that the runner reduces this bucket in this step.
  [[nodiscard]] virtual bool enqueue(const plan::Bucket& bucket, const StepInfo& info, std::uint64_t step,
                                     double loss_scale) = 0;
  /// Starts as many of the enqueued buckets as may run now.
  virtual void start(Buckets& buckets) = 0;
  virtual void ended(const Buckets::Ended& bucket) = 0;

  // Any thread may call these.
  /// Whether the bucket was enqueued in this step and all results that the step waits for have arrived.
  [[nodiscard]] virtual bool arrived(std::uint32_t bucket) const = 0;
  [[nodiscard]] virtual bool busy() const = 0;

  // finish() calls these once all results have arrived, in a step that is not skipped.
  /// Writes the results to gradients and parameters. Returns whether NaN or Inf was in them.
  [[nodiscard]] virtual bool deliver(double loss_scale) = 0;
  /// Enqueues parameters for Session::sync_parameters() before `step`. Returns whether there is something to wait for.
  [[nodiscard]] virtual bool enqueue_parameters(std::uint64_t step) = 0;
  /// Delivers, before `step`, what was enqueued between steps and has arrived on all ranks.
  virtual void deliver_between_steps(std::uint64_t step) = 0;
  /// The memory that holds the same values on all ranks after `step`.
  [[nodiscard]] virtual std::vector<View> comparable(std::uint64_t step) const = 0;

 protected:
  ~Background() = default;
};

/// A part that follows how long this rank computes and how long it waits. The engine calls it under `state`.
class StepTimer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A step has ended and is counted, and its finish() took `exposed` seconds. `as_usual` is StepResult::as_usual.
  virtual void step_ended(Time now, double exposed, bool as_usual) = 0;
  /// This rank waited for other ranks for `seconds`, which the runner does not count.
  virtual void waited(double seconds) noexcept = 0;

 protected:
  ~StepTimer() = default;
};

/// A part that reports steps to an observer. The caller is finish(), with no lock held.
class StepListener {
 public:
  /// The step is over: its results are delivered and ranks have compared their numbers. `begin` is observe::ticks()
  /// when finish() began, or 0 if nobody observes.
  virtual void step_over(const StepOutcome& outcome, std::uint64_t begin,
                         std::chrono::steady_clock::time_point end) = 0;

 protected:
  ~StepListener() = default;
};

/// A part that ranks change together at the end of a step. The caller is finish().
class StepParticipant {
 public:
  /// All results of the step have arrived, and nothing of the step counts yet. Collective; the caller holds the lock
  /// for communication. `skipped`: ranks leave the step out.
  virtual void prepare(const StepInfo& step, bool skipped) = 0;
  /// The step counts on all ranks.
  virtual void commit() = 0;

 protected:
  ~StepParticipant() = default;
};

/// A part that looks at the results of steps.
class ResultReader {
 public:
  /// Whether the part reads the results of `step`; the same on every rank.
  [[nodiscard]] virtual bool reads(std::uint64_t step) const = 0;
  /// `results` is the memory that holds the same values on all ranks after `step`, which was not skipped. Collective;
  /// the caller holds the lock for communication.
  virtual void read(std::span<const View> results, std::uint64_t step) = 0;

 protected:
  ~ResultReader() = default;
};

/// A part that shares data out over the ranks, so that data moves when ranks end or join. All ranks make these calls
/// alike, between steps.
class SharedOut {
 public:
  /// Whether data still lies as another world had shared it out. The answer is the same on all ranks of that world.
  [[nodiscard]] virtual bool to_move() const = 0;
  /// Sends data to the ranks that hold it from here on. Collective; the caller holds the lock for communication.
  /// `holds` says that this rank knows what the ranks of the previous world know.
  virtual void move(bool holds) = 0;
  /// Makes the moved data the part's own, once all ranks have moved theirs.
  virtual void install() = 0;

 protected:
  ~SharedOut() = default;
};

/// A part that takes rows of tables from files. Between begin_rows() and Part::load() it keeps them aside.
class RowLoader {
 public:
  /// Returns a sink that keeps rows read from files until load() makes them the part's own; each call begins anew.
  [[nodiscard]] virtual table::RowSink& begin_rows() = 0;
  /// Frees rows that no load() took.
  virtual void forget_rows() = 0;

 protected:
  ~RowLoader() = default;
};

/// The result of the ranks' agreement on the plan, as one part gets it.
struct Agreement {
  std::uint64_t step = 0;  // the first step under the agreement
  StepsAhead steps;
  std::vector<std::string> told;                   // this part's says(), by rank
  std::function<void(const Link&)> link_measured;  // makes the choices that depend on the link, equally on every rank
};

class Part {
 public:
  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  virtual ~Part() = default;

  /// Returns a word or two, such as "scales".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Whether ranks compare the part's name when they agree on the plan, in the order of parts, because a part that
  /// communicates and exists only on some ranks would hang. False for a part that only watches, or that decides in
  /// agreed() what it does.
  [[nodiscard]] virtual bool has_name_compared() const noexcept { return true; }
  /// Returns a line that this rank tells the other ranks when they agree on the plan, and that may differ. If it is
  /// empty, it is empty on every rank, and nothing is told.
  [[nodiscard]] virtual std::string says() const { return {}; }
  /// All ranks have agreed on the plan. Every rank calls it once, on the thread that communicates and without the lock
  /// that finish() and reports hold. A part that reports what it sets here guards it, or is only read by add_to() of a
  /// snapshot, which finish() asks for.
  virtual void agreed(const Agreement& /*agreement*/) {}
  /// `before` was made by the same row of the table in the previous world, and hands over what outlives a world. A part
  /// that is made with the session gets it before there is a plan.
  virtual void take_over(Part& /*before*/) {}
  /// Adds lines that ranks compare with the plan, and that its fingerprint covers.
  virtual void add_to(plan::Plan& /*plan*/) const {}
  /// Whether a call of the coming step has changed the part already, before the first ready().
  [[nodiscard]] virtual bool in_step() const { return false; }
  /// Throws Error(mismatch) if `state`, which is read from `source`, is not of this part's kind.
  virtual void check(const SavedState& /*state*/, const std::string& /*source*/) const {}
  // The session calls these two between steps, for files and for the next world.
  /// Writes the part's state to `state`; for the next world, after take_over() has taken its share.
  virtual void save(SavedState& /*state*/) {}
  /// Continues from `state`; the next step has the number `state.step`.
  virtual void load(const SavedState& /*state*/) {}
  /// Throws Error(unsupported) if the part does not work with a loss scale.
  virtual void check_loss_scale() const {}

  /// Adds the handles of memory that the page pool may move during the call of finish() that asks for them. Until
  /// finish() returns, no other thread may use that memory.
  virtual void add_blocks(std::vector<memory::Block*>& /*blocks*/) {}

  // These return the interfaces that the part implements, and null for the others. An answer may change until the plan
  // is made, in agreed(), and at no other time.
  /// The numbers that the part compares among ranks at the ends of steps.
  [[nodiscard]] virtual ComparedPart* compared() noexcept { return nullptr; }
  [[nodiscard]] virtual Tuner* tuner() noexcept { return nullptr; }
  [[nodiscard]] virtual StepTimer* timer() noexcept { return nullptr; }
  [[nodiscard]] virtual StepListener* listener() noexcept { return nullptr; }
  [[nodiscard]] virtual Background* background() noexcept { return nullptr; }
  [[nodiscard]] virtual StepParticipant* participant() noexcept { return nullptr; }
  [[nodiscard]] virtual ResultReader* result_reader() noexcept { return nullptr; }
  [[nodiscard]] virtual SharedOut* shared_out() noexcept { return nullptr; }
  [[nodiscard]] virtual RowLoader* row_loader() noexcept { return nullptr; }

  // Reports; any thread may call these.
  /// Whole lines for Session::explain().
  [[nodiscard]] virtual std::string explain() const { return {}; }
  /// Adds the part's numbers; the groups of `statistics` are already filled in.
  virtual void add_to(SessionStatistics& /*statistics*/) const {}
  virtual void add_to(observe::Snapshot& /*snapshot*/) const {}
  virtual void reset_statistics() {}
  /// The session ends: nothing calls the part any more.
  virtual void session_ends() noexcept {}
};

/// The inputs from which a part is made. All of them except `held` outlive the part.
struct PartInputs {
  const std::optional<plan::Plan>& plan;  // there once the first step begins, or somebody asks for it
  const Policy& policy;
  const SessionOptions& options;
  const Tensors& tensors;
  const SyncSchedule& schedule;
  const StepWatch& watch;
  Runner& runner;
  const SavedState* held = nullptr;  // the state being loaded; valid only while the part is made
  bool undoable = false;             // EngineSettings::undoable
  // EngineSettings::members and copies_of_rows.
  const std::optional<std::vector<std::uint32_t>>& members;
  int copies_of_rows = 1;
  std::function<observe::Snapshot()> look = nullptr;  // describes the whole session; the caller holds no lock
};

/// Makes one kind of part.
struct PartMaker {
  enum class When : std::uint8_t {
    with_plan,     // once the plan is there, which says whether the session needs the part
    with_session,  // before there is a plan
  };
  /// Returns null if this session does not need the part; the answer is the same on every rank.
  using Make = std::function<std::unique_ptr<Part>(const PartInputs&)>;

  // Implicit, so that a table is a list of functions.
  template <typename Function>
  PartMaker(Function function, When made = When::with_plan) : make(std::move(function)), when(made) {}

  Make make;
  When when;
};
using PartTable = std::vector<PartMaker>;

/// The table that every session is given unless its maker names another. A new part adds its line there.
[[nodiscard]] const PartTable& standard_parts();

/// Makes a session with parts of the caller's choice, in place of standard_parts().
[[nodiscard]] Session make_session(std::unique_ptr<Runner> runner, Policy policy, SessionOptions options,
                                   PartTable parts);

}  // namespace gradwire::session
