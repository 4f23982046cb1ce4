// The end of a step: what finish() waits for, counts, compares and decides.
#include <chrono>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "observe/record.hpp"
#include "session/session_state.hpp"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void Session::State::check_may_finish() {
  checked([&] {
    if (no_sync) {
      throw Error(ErrorCode::invalid_argument,
                  "finish: called under no_sync(); leave that scope for the last backward pass of a step");
    }
    progress.require_communication("finish");
  });
}

void Session::State::check_all_ready() {
  std::string names;
  std::size_t count = 0;
  std::uint64_t now = 0;
  {
    const std::lock_guard lock(progress.state);
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

StepOutcome Session::State::finish() {
  const std::uint64_t ticks = observe::ticks();
  const auto begin = Clock::now();
  check_may_finish();
  const bool was_small = reduce_small();
  if (!was_small) {
    check_all_ready();
    progress.wait_until("finish", [&] { return step.ended(); });
  }
  exchange_pushes();
  if (elastic) {
    commit_step();
  }
  count_in_tables();
  const Ended ended = end_step(begin, was_small);
  const StepOutcome& outcome = ended.end.outcome;
  last_outcome = outcome;
  parts.after_step(outcome);
  conclude(ended);
  tell(outcome, ended.at);
  if (ticks != 0) {
    observe::record_since(ticks, {.source = runner->info().source,
                                  .step = static_cast<std::uint32_t>(outcome.step),
                                  .kind = observe::EventKind::step_end});
    publish(false);
  }
  return outcome;
}

// Others count the step: a rank that cannot has to go.
void Session::State::count_in_tables() {
  try {
    tables.count();
  } catch (const std::bad_alloc&) {
    on_wire([] {
      throw Error(ErrorCode::out_of_memory, "finish: no memory for the rows that this step has pushed to tables");
    });
  }
}

// Until all members of the world hold all that this step delivers, nothing of it counts.
void Session::State::commit_step() {
  settle();
  if (!elastic->commit()) {
    throw Error(ErrorCode::aborted, "finish: the world changes");
  }
  const std::lock_guard lock(progress.wire);
  if (step.outcome().skipped && modes && modes->has_uncounted()) {
    return;  // late gradients may be on their way, and nothing else has changed
  }
  runner->undo()->commit();
  if (!step.outcome().skipped) {
    sent = step.number();
    flushed = step.info().flush ? sent : flushed;
  }
  if (elastic->replicates_after(step.number())) {
    try {
      elastic->replicate(step.number(), {step.loss_scale(), runner->held().save_residuals(*plan)});
    } catch (const std::exception& error) {  // the step counts all the same
      log(LogLevel::warning, std::string("residuals were not copied to another rank: ") + error.what());
    }
  }
}

bool Session::State::compares_results(const StepOutcome& outcome) const {
  return options.compare_ranks_every > 0 && (outcome.step + 1) % options.compare_ranks_every == 0;
}

Session::State::Ended Session::State::end_step(Clock::time_point begin, bool was_small) {
  const bool captured = capturing();
  const bool delivered_nonfinite = !was_small && deliver();
  const bool nonfinite = end_device_step() || delivered_nonfinite;
  const Statistics totals = decides() ? runner->totals() : Statistics{};
  const auto now = Clock::now();
  const double exposed = std::chrono::duration<double>(now - begin).count();
  Ended ended{.at = now, .end = {}, .results = {}};
  const std::lock_guard lock(progress.state);
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
  if (decides()) {
    see_step_end(now, exposed, totals, ended.end.micro_steps);
  }
  watch.count(exposed);
  if (rank_comparison) {
    rank_comparison->end_step(now, exposed, ended.end.as_usual);
  }
  was_captured = was_captured || captured;
  ended.undecided = !step.last_decided();
  ended.may_get_small = may_be_small && !small;
  reset_step(now);
  if (modes && modes->busy()) {
    progress.wake();  // for late gradients that begin to travel now
  }
  return ended;
}

void Session::State::conclude(const Ended& ended) {
  const session::Step::End& end = ended.end;
  const bool may_compare = decides() || comparison.under_way() ||
                           (rank_comparison && rank_comparison->due(end.outcome.step)) || parts.due(end.outcome.step);
  if ((may_compare && end.as_usual) || ended.undecided || ended.may_get_small) {
    on_wire([&] {
      if (end.as_usual) {
        decide(end.outcome.step);
      }
      decide_coming(ended.undecided);
    });
  }
  if (compares_results(end.outcome) && !end.outcome.skipped) {
    on_wire([&] { runner->compare(ended.results, end.outcome.step); });
  }
}

}  // namespace gradwire
