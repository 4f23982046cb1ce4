// What a session learns from its steps: what each one took, and what that says of the link, codecs and the batch.
#include <chrono>
#include <optional>

#include "base/elapsed.hpp"
#include "session/session_state.hpp"

namespace gradwire {

void Session::State::see_step_end(session::StepWatch::Time now, double exposed, const Statistics& totals,
                                  std::uint32_t micro_steps) {
  std::optional<std::size_t> ranks;
  if (plan->tiers->why_not_hierarchical().empty()) {
    ranks = plan->tiers->members(0).size();
  }
  watch.end(now, exposed, totals, ranks, micro_steps, progress.background());
}

void Session::State::decide(std::uint64_t ended_step) {
  if (auto_codec) {
    auto_codec->note_step(watch.last());
  }
  if (auto_batch) {
    auto_batch->note_step(ended_step, watch.last());
  }
  comparison.end_step(ended_step);
}

void Session::State::decide_coming(bool undecided) {
  const std::uint64_t revision = auto_codec ? auto_codec->revision() : 0;
  if (!undecided && decided_for == revision) {
    if (may_be_small && !small) {  // they change under both locks
      look_for_residuals();
    }
    return;
  }
  decided_for = revision;
  const session::Probes* probes = runner->probes();
  const session::SmallSteps* steps = runner->small();
  const auto choices = auto_codec ? auto_codec->choices() : std::span<const session::BucketChoice>();
  const bool in_call = step.has_agreed() && probes != nullptr && probes->ends_in_call(*plan, choices);
  const bool takes = step.has_agreed() && steps != nullptr && !modes && steps->takes(*plan, choices);
  {
    const std::lock_guard lock(progress.state);
    step.decide_last(in_call);
    may_be_small = takes;
  }
  look_for_residuals();
}

// Those of a codec that was given up, or that were loaded, go into the next step that is not small.
void Session::State::look_for_residuals() {
  const std::lock_guard lock(progress.state);
  small = may_be_small && !runner->small()->has_to_add();
}

LinkEstimate Session::State::link() {
  progress.require_communication("link");
  const auto begin = std::chrono::steady_clock::now();
  session::Probes* probes = runner->probes();
  {
    const std::lock_guard lock(progress.state);
    step.faults.throw_if_failed();
    if (auto_codec && step.has_agreed()) {
      return auto_codec->link();
    }
    if (probes == nullptr) {
      throw Error(ErrorCode::unsupported,
                  "link: links between devices are not measured yet; ask a session over host memory");
    }
    step.require_between("link");
  }
  const exchange::Tiers tiers = policy.tiers.ranks_per_node
                                    ? exchange::Tiers::in_rows(*policy.tiers.ranks_per_node, runner->info().world_size)
                                    : exchange::Tiers(runner->info().nodes, runner->info().world_size);
  LinkEstimate estimate;
  on_wire([&] { estimate = session::to_estimate(session::measure_cluster(*runner, *probes, tiers), 0); });
  estimate.measured_in_seconds = seconds_since(begin);
  return estimate;
}

}  // namespace gradwire
