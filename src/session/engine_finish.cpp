// The end of a step: what finish() waits for, counts, compares and decides.
#include <chrono>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "observe/record.hpp"
#include "session/engine.hpp"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void session::Engine::check_may_finish() {
  checked([&] {
    if (no_sync) {
      throw Error(ErrorCode::invalid_argument,
                  "finish: called under no_sync(); leave that scope for the last backward pass of a step");
    }
    progress.require_communication("finish");
  });
}

void session::Engine::check_all_ready() {
  std::string names;
  std::size_t count = 0;
  std::uint64_t now = 0;
  {
    const MutexLock lock(progress.state);
    step.faults.throw_if_failed();
    make_plan();
    now = step.number();
    for (std::uint32_t i = 0; i < tensors.size(); ++i) {
      if (!step.is_ready(i) && ++count <= 5) {
        names += (names.empty() ? "\"" : ", \"") + tensors.name(i) + "\"";
      }
    }
  }
  if (count == 0) {
    return;
  }
  const Error error(ErrorCode::invalid_argument, "finish: " + std::to_string(count) + " tensor(s) not ready on rank " +
                                                     std::to_string(runner->info().rank) + " in step " +
                                                     std::to_string(now) + ": " + names + (count > 5 ? ", ..." : "") +
                                                     "; call ready(), or ready_zero() where there is no gradient");
  if (progress.background()) {
    runner->abort(error.code(), error.what());  // the progress thread may hold `wire` for long
  }
  on_wire([&] { throw Error(error); });
}

StepOutcome session::Engine::finish() { return commit(prepare()); }

session::Engine::Finishing session::Engine::prepare() {
  Finishing finishing{.ticks = observe::ticks(), .begin = Clock::now()};
  check_may_finish();
  finishing.was_small = reduce_small();
  if (!finishing.was_small) {
    check_all_ready();
    progress.wait_until("finish", [&] {
      progress.state.assert_held();
      return step.ended();
    });
  }
  exchange_pushes();
  return finishing;
}

StepOutcome session::Engine::commit(const Finishing& finishing) {
  count_in_tables();
  const Ended over = end_step(finishing.begin, finishing.was_small);
  last_outcome = over.end.outcome;  // also where what follows throws
  conclude(over);
  parts.step_over(last_outcome, finishing.ticks, over.at);
  return last_outcome;
}

// Others count the step: a rank that cannot has to go.
void session::Engine::count_in_tables() {
  try {
    tables.count();
  } catch (const std::bad_alloc&) {
    on_wire([] {
      throw Error(ErrorCode::out_of_memory, "finish: no memory for the rows that this step has pushed to tables");
    });
  }
}

bool session::Engine::compares_results(const StepOutcome& outcome) const {
  return options.compare_ranks_every > 0 && (outcome.step + 1) % options.compare_ranks_every == 0;
}

session::Engine::Ended session::Engine::end_step(Clock::time_point begin, bool was_small) {
  const bool captured = capturing();
  const bool delivered_nonfinite = !was_small && deliver();
  const bool nonfinite = end_device_step() || delivered_nonfinite;
  const Statistics totals = parts.tune() ? runner->totals() : Statistics{};
  const auto now = Clock::now();
  const double exposed = std::chrono::duration<double>(now - begin).count();
  Ended ended{.at = now, .end = {}, .results = {}};
  const MutexLock lock(progress.state);
  if (compares_results(step.outcome())) {
    ended.results = comparable_results();
  }
  if (small) {  // ready() looked at no clock
    watch.all_ready(begin);
  }
  if (was_small) {
    watch.busy(begin, now);
  }
  ended.end = step.end(nonfinite, captured);
  if (parts.tune()) {
    see_step_end(now, exposed, totals, ended.end.micro_steps);
  }
  watch.count(exposed);
  parts.time_step(now, exposed, ended.end.as_usual);
  was_captured = was_captured || captured;
  ended.undecided = !step.last_decided();
  ended.may_get_small = may_be_small && !small;
  reset_step(now);
  if (parts.background() != nullptr && parts.background()->busy()) {
    progress.wake();  // for late gradients that begin to travel now
  }
  return ended;
}

void session::Engine::conclude(const Ended& ended) {
  const session::Step::End& end = ended.end;
  const bool may_compare = parts.tune() || comparison.under_way() || parts.due(end.outcome.step);
  if ((may_compare && end.as_usual) || ended.undecided || ended.may_get_small) {
    on_wire([&] {
      progress.wire.assert_held();
      if (end.as_usual) {
        parts.step_ended(end.outcome.step, last_seen());
        comparison.end_step(end.outcome.step);
      }
      decide_coming(ended.undecided);
    });
  }
  if (compares_results(end.outcome) && !end.outcome.skipped) {
    on_wire([&] { runner->compare(ended.results, end.outcome.step); });
  }
}

void session::Engine::see_step_end(session::StepWatch::Time now, double exposed, const Statistics& totals,
                                   std::uint32_t micro_steps) {
  std::optional<std::size_t> ranks;
  if (plan->tiers->why_not_hierarchical().empty()) {
    ranks = plan->tiers->members(0).size();
  }
  watch.end(now, exposed, totals, ranks, micro_steps, progress.background());
}

void session::Engine::decide_coming(bool undecided) {
  const std::uint64_t revision = parts.revision();
  if (!undecided && decided_for == revision) {
    if (may_be_small && !small) {  // they change under both locks
      look_for_residuals();
    }
    return;
  }
  decided_for = revision;
  const session::Probes* probes = runner->probes();
  const session::SmallSteps* steps = runner->small();
  session::StepInfo coming;
  parts.tune(coming);
  const bool in_call = settled_step().has_agreed() && probes != nullptr && probes->ends_in_call(*plan, coming.choices);
  const bool takes = settled_step().has_agreed() && steps != nullptr && parts.background() == nullptr &&
                     steps->takes(*plan, coming.choices);
  {
    const MutexLock lock(progress.state);
    step.decide_last(in_call);
    may_be_small = takes;
  }
  look_for_residuals();
}

// Those of a codec that was given up, or that were loaded, go into the next step that is not small.
void session::Engine::look_for_residuals() {
  const MutexLock lock(progress.state);
  small = may_be_small && !runner->small()->has_to_add();
}

}  // namespace gradwire
