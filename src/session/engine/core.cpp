#include "session/engine/core.hpp"

#include <atomic>
#include <string>

#include "base/current_error.hpp"
#include "base/log.hpp"
#include "base/processor_cores.hpp"
#include "memory/background_threads.hpp"
#include "memory/placement.hpp"
#include "observe/record.hpp"
#include "policy/stage.hpp"
#include "session/engine/session_reports.hpp"
#include "session/logging/logging.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;
using When = PartMaker::When;

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last = 0;
  return ++last;
}

Threading threading_over(Runner& runner, Threading asked) {
  return runner.device() != nullptr ? Threading::serialized : asked;  // a device needs no thread to make progress
}

// Ranks whose bindings overlap, and those that are threads, would all choose the same cores.
bool binds_threads(const Runner& runner, const Policy& policy) {
  const RunnerInfo& info = runner.info();
  return policy.memory.bind && !info.shares_process &&
         ranks_on_node(info.nodes, info.rank, info.world_size) <= memory::own_placement().most_ranks;
}

}  // namespace

Core::Core(std::unique_ptr<Runner> r, EngineSettings given)
    : settings(std::move(given)),
      runner(std::move(r)),
      step(next_number(), settings.options.nonfinite, settings.undoable),
      parts(settings.parts),
      progress(threading_over(*runner, settings.options.threading), step, binds_threads(*runner, settings.policy)) {
  memory::bind_background_threads(binds_threads(*runner, settings.policy) ? &memory::own_placement() : nullptr);
}

void Core::rethrow_given_up(bool to_caller) {
  const Error error = current_error();
  give_up(error);
  if (to_caller) {
    const MutexLock lock(progress.state);
    step.faults.reported();
  }
  throw Error(error);
}

// A failure after which the next world's engine takes over is not recorded as an error, unless there is no next engine.
void Core::give_up(const Error& error, bool for_good) noexcept {
  const bool is_one = for_good || !leaves_to_finish(error);
  if (is_one && !error_recorded.exchange(true)) {
    observe::record({.begin = observe::ticks(),
                     .bytes = static_cast<std::uint64_t>(error.code()),
                     .source = runner->info().source,
                     .step = static_cast<std::uint32_t>(settled_step().number()),
                     .kind = observe::EventKind::error});
  }
  runner->fail(error);
  const MutexLock lock(progress.state);
  for_good ? step.faults.end_told(error) : step.faults.fail(error);
  progress.changed();
  progress.wake();
}

void Core::make_plan() {
  if (plan) {
    return;
  }
  plan = plan::make_plan(settings.policy, tensors.infos(),
                         {.world_size = runner->info().world_size,
                          .reduction = settings.options.reduction,
                          .checksum = runner->info().checksum,
                          .nodes = runner->info().nodes,
                          .knows_tiers = runner->info().knows_tiers,
                          .packs_frames = runner->info().packs_frames,
                          .node_sums = runner->info().node_sums,
                          .undoable = settings.undoable,
                          .sealed = !runner->info().key_check.empty()});
  parts.for_each([this](const Part& part) { part.add_to(*plan); });
  const bool speaks = runner->info().rank == 0;  // all ranks have the same plan; if not, the first step reports that
  for (const std::string& warning : plan->warnings) {
    log(speaks ? LogLevel::warning : LogLevel::debug, warning);
  }
  for (const std::string& note : plan->notes) {
    log(speaks ? LogLevel::info : LogLevel::debug, note);
  }
  if (speaks && logs(LogLevel::debug)) {  // the text is long if there are many tensors
    log(LogLevel::debug, plan->explain());
  }
  try {
    parts.make(part_inputs(), When::with_plan);
    if (step.terms.loss_scale_set()) {
      parts.for_each([](const Part& part) { part.check_loss_scale(); });
    }
  } catch (...) {
    parts.unmake();
    plan.reset();  // so that the next call makes the plan and its parts again, or fails in the same way
    throw;
  }
  step.set_plan(*plan);
  reset_step(Clock::now());
}

PartInputs Core::part_inputs(const SavedState* held) {
  return {.plan = plan,
          .policy = settings.policy,
          .options = settings.options,
          .tensors = tensors,
          .schedule = step.modes,
          .watch = watch,
          .runner = *runner,
          .held = held,
          .undoable = settings.undoable,
          .members = settings.members,
          .copies_of_rows = settings.copies_of_rows,
          .look = [this] { return snapshot_of(*this); }};
}

void Core::reset_step(StepWatch::Time now) {
  tensors.begin_step();
  watch.begin(plan->buckets.size(), now);
}

bool Core::packs_broadcasts() const { return policy::packs_frames(settings.policy); }

void Core::require_between_steps(const char* call) {
  const MutexLock lock(progress.state);
  throw_if_failed();
  step.require_between(call);
}

}  // namespace gradwire::session
