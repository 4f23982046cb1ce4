// What a session learns from its steps: what each one took, and what that says of the link, codecs and the batch.
#include <algorithm>
#include <chrono>

#include "base/elapsed.hpp"
#include "session/session_state.hpp"

namespace gradwire {

void Session::State::see_step_end(double exposed) {
  Statistics now;
  for (const Statistics& group : runner->statistics()) {
    now.add(group);
  }
  const std::lock_guard lock(mutex);
  last_seen = seen;
  last_seen.step_seconds = seconds_since(step_begun);
  last_seen.exposed_seconds = exposed;
  last_seen.micro_steps = 1 + (accumulated.empty() ? 0 : *std::max_element(accumulated.begin(), accumulated.end()));
  last_seen.bytes_sent = static_cast<double>(now.bytes_sent - counted.bytes_sent);
  if (plan->tiers->obstacle().empty()) {
    last_seen.bytes_sent = static_cast<double>(now.bytes_inter - counted.bytes_inter) *
                           static_cast<double>(plan->tiers->members(0).size());
  }
  last_seen.wait_seconds = now.wire_seconds - counted.wire_seconds;
  if (!background()) {
    last_seen.busy_seconds = 0;  // what went on between calls was not seen
  }
  counted = now;
}

void Session::State::adapt(std::uint64_t ended_step, bool as_usual) const {
  if (!as_usual) {
    return;
  }
  if (adaptation) {
    adaptation->end_step(ended_step, last_seen);
  }
  if (batch) {
    batch->end_step(ended_step, last_seen);
  }
}

void Session::State::settle_last_bucket() {
  const session::Probes* probes = runner->probes();
  const auto choices = adaptation ? adaptation->choices() : std::span<const session::BucketChoice>();
  const bool in_call = agreed && probes != nullptr && probes->ends_in_call(*plan, choices);
  const std::lock_guard lock(mutex);
  ends_in_call = in_call;
  last_settled = agreed;
}

LinkEstimate Session::State::link() {
  require_communication("link");
  const auto begin = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex);
    throw_if_failed();
    if (adaptation && agreed) {
      return adaptation->link();
    }
    if (runner->probes() == nullptr) {
      throw Error(ErrorCode::unsupported,
                  "link: links between devices are not measured yet; ask a session over host memory");
    }
    require_between_steps("link");
  }
  const collective::Tiers tiers =
      policy.tiers.ranks_per_node ? collective::Tiers::in_rows(*policy.tiers.ranks_per_node, runner->info().world_size)
                                  : collective::Tiers(runner->info().nodes, runner->info().world_size);
  LinkEstimate estimate;
  on_wire([&] { estimate = session::to_estimate(session::measure_cluster(*runner, tiers), 0); });
  estimate.measured_in_seconds = seconds_since(begin);
  return estimate;
}

}  // namespace gradwire
