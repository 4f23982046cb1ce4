#include "session/engine/step_end.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "observe/record.hpp"
#include "session/engine/host_memory.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void StepEnd::check_may_finish() {
  core_.checked([&] {
    if (core_.no_sync) {
      throw Error(ErrorCode::invalid_argument,
                  "finish: called under no_sync(); leave that scope for the last backward pass of a step");
    }
    core_.progress.require_communication("finish");
  });
}

void StepEnd::check_all_ready() {
  std::string names;
  std::size_t count = 0;
  std::uint64_t now = 0;
  {
    const MutexLock lock(core_.progress.state);
    core_.step.faults.throw_if_failed();
    core_.make_plan();
    if (core_.step.buckets.all_ready()) {
      return;
    }
    now = core_.step.number();
    for (std::uint32_t i = 0; i < core_.tensors.size(); ++i) {
      if (!core_.step.buckets.is_ready(i) && ++count <= 5) {
        names += (names.empty() ? "\"" : ", \"") + core_.tensors.name(i) + "\"";
      }
    }
  }
  const Error error(ErrorCode::invalid_argument, "finish: " + std::to_string(count) + " tensor(s) not ready on rank " +
                                                     std::to_string(core_.runner->info().rank) + " in step " +
                                                     std::to_string(now) + ": " + names + (count > 5 ? ", ..." : "") +
                                                     "; call ready(), or ready_zero() where there is no gradient");
  if (core_.progress.background()) {
    core_.runner->abort(error);  // before on_wire(): the progress thread may hold `wire` for long
  }
  core_.on_wire([&] { throw Error(error); });
}

StepEnd::Finishing StepEnd::prepare() {
  Finishing finishing{.ticks = observe::ticks(), .begin = Clock::now()};
  check_may_finish();
  finishing.was_small = coming_.reduce_small();
  if (!finishing.was_small) {
    check_all_ready();
    core_.progress.wait_until("finish", [&] {
      core_.progress.state.assert_held();
      return core_.step.buckets.all_ended();
    });
  }
  prepare_parts();
  return finishing;
}

StepOutcome StepEnd::commit(const Finishing& finishing) {
  commit_parts();
  const Ended over = end_step(finishing.begin, finishing.was_small);
  last_outcome_ = over.end.outcome;  // before conclude(), which may throw
  conclude(over);
  core_.parts.step_over(last_outcome_, finishing.ticks, over.at);
  tend_host_memory(core_, over.at);
  return last_outcome_;
}

void StepEnd::prepare_parts() {
  if (core_.parts.participants().empty()) {
    return;
  }
  StepInfo info;
  bool skipped = false;
  {
    const MutexLock lock(core_.progress.state);
    info = core_.step.info();
    skipped = core_.step.outcome().skipped;
  }
  core_.on_wire([&] {
    for (StepParticipant* part : core_.parts.participants()) {
      part->prepare(info, skipped);
    }
  });
}

// The other ranks count the step, so a rank that cannot commit it must leave.
void StepEnd::commit_parts() {
  try {
    for (StepParticipant* part : core_.parts.participants()) {
      part->commit();
    }
  } catch (const Error& error) {
    core_.on_wire([&] { throw Error(error); });
  }
}

bool StepEnd::has_results_read(std::uint64_t step) const {
  return std::ranges::any_of(core_.parts.result_readers(), [=](const ResultReader* one) { return one->reads(step); });
}

StepEnd::Ended StepEnd::end_step(Clock::time_point begin, bool was_small) {
  const bool captured = device_.capturing();
  const bool delivered_nonfinite = !was_small && deliver();
  const bool nonfinite = device_.end_step() || delivered_nonfinite;
  const Statistics totals = core_.parts.tune() ? core_.runner->totals() : Statistics{};
  const auto now = Clock::now();
  const double exposed = std::chrono::duration<double>(now - begin).count();
  Ended ended{.at = now, .end = {}, .results = {}};
  const MutexLock lock(core_.progress.state);
  ended.read = has_results_read(core_.step.outcome().step);
  if (ended.read) {
    ended.results = comparable_results();
  }
  if (coming_.small()) {  // ready() has not read the clock
    core_.watch.all_ready(begin);
  }
  if (was_small) {
    core_.watch.busy(begin, now);
  }
  ended.end = core_.step.end(nonfinite, captured);
  if (core_.parts.tune()) {
    see_step_end(now, exposed, totals, ended.end.micro_steps);
  }
  core_.watch.count(exposed);
  core_.parts.time_step(now, exposed, ended.end.as_usual);
  if (captured) {
    device_.note_captured();
  }
  ended.undecided = !core_.step.last_decided();
  ended.may_get_small = coming_.may_get_small();
  core_.reset_step(now);
  if (core_.parts.background() != nullptr && core_.parts.background()->busy()) {
    core_.progress.wake();  // late gradients begin to travel now
  }
  return ended;
}

void StepEnd::conclude(const Ended& ended) {
  const Step::End& end = ended.end;
  const bool may_compare = core_.parts.tune() || core_.comparison.under_way() || core_.parts.due(end.outcome.step);
  if ((may_compare && end.as_usual) || ended.undecided || ended.may_get_small) {
    core_.on_wire([&] {
      if (end.as_usual) {
        core_.parts.step_ended(end.outcome.step, last_seen());
        core_.comparison.end_step(end.outcome.step);
      }
      coming_.decide(ended.undecided);
    });
  }
  if (ended.read && !end.outcome.skipped) {
    core_.on_wire([&] {
      for (ResultReader* reader : core_.parts.result_readers()) {
        if (reader->reads(end.outcome.step)) {
          reader->read(ended.results, end.outcome.step);
        }
      }
    });
  }
}

void StepEnd::see_step_end(StepWatch::Time now, double exposed, const Statistics& totals, std::uint32_t micro_steps) {
  std::optional<std::size_t> ranks;
  if (core_.plan->tiers->why_not_hierarchical().empty()) {
    ranks = core_.plan->tiers->members(0).size();
  }
  core_.watch.end(now, exposed, totals, ranks, micro_steps, core_.progress.background());
}

// Only finish() calls this, and no other thread changes the step meanwhile.
bool StepEnd::deliver() {
  if (core_.parts.background() == nullptr) {
    return false;
  }
  double scale = 1;
  {
    const MutexLock lock(core_.progress.state);
    if (core_.step.outcome().skipped) {
      return false;
    }
    scale = core_.step.terms.loss_scale();
  }
  return core_.parts.background()->deliver(scale);
}

std::vector<View> StepEnd::comparable_results() const {
  if (core_.parts.background() != nullptr) {
    return core_.parts.background()->comparable(core_.step.number());
  }
  std::vector<View> results;
  for (const TensorMemory& memory : core_.tensors.memory()) {
    results.push_back(memory.gradient);
  }
  return results;
}

}  // namespace gradwire::session
