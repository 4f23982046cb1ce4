// What a session counts, and what it knows of its link.
#include <chrono>

#include "base/elapsed.hpp"
#include "observe/sources.hpp"
#include "policy/stage.hpp"
#include "policy/sync.hpp"
#include "session/engine.hpp"
#include "session/parts/auto_codec/auto_codec.hpp"

namespace gradwire {

SessionStatistics session::Engine::statistics() const {
  SessionStatistics statistics;
  const std::vector<Statistics> totals = runner->statistics();
  const std::lock_guard lock(progress.state);
  statistics.transport = runner->info().transport;
  statistics.rank = runner->info().rank;
  statistics.world_size = runner->info().world_size;
  statistics.steps = watch.steps();
  statistics.exposed_seconds = watch.exposed_seconds();
  statistics.comparisons = comparison.count();
  statistics.comparison_seconds = comparison.seconds();
  if (const session::DeviceSteps* device = runner->device()) {
    statistics.device_memory = device->memory();
  }
  for (std::size_t i = 0; plan && i < plan->groups.size(); ++i) {
    const plan::Group& group = plan->groups[i];
    statistics.groups.push_back({.name = group.name,
                                 .codec = policy::codec_text(group.policy),
                                 .algorithm = plan->algorithms(i),
                                 .compressed = group.policy.codec != CodecSpec::exact(),
                                 .tensors = group.tensors,
                                 .totals = i < totals.size() ? totals[i] : Statistics{},
                                 .sync = policy::to_string(group.policy.sync),
                                 .algorithm_reason = statistics.world_size > 1 ? plan->why_algorithms(i) : ""});
  }
  parts.add_to(statistics);
  return statistics;
}

observe::Snapshot session::Engine::look() const {
  observe::Snapshot snapshot{.source = runner->info().source, .statistics = statistics()};
  const std::lock_guard lock(progress.state);
  if (plan) {
    snapshot.knowledge = runner->known(*plan);
  }
  parts.add_to(snapshot);
  return snapshot;
}

LinkEstimate session::Engine::link() {
  progress.require_communication("link");
  const auto begin = std::chrono::steady_clock::now();
  session::Probes* probes = runner->probes();
  {
    const std::lock_guard lock(progress.state);
    step.faults.throw_if_failed();
    if (const auto* chooser = parts.find<session::AutoCodec>()) {
      if (const auto known = chooser->link()) {
        return *known;
      }
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
  on_wire([&] { estimate = choice::to_estimate(session::measure_cluster(*runner, *probes, tiers), 0); });
  estimate.measured_in_seconds = seconds_since(begin);
  return estimate;
}

}  // namespace gradwire
