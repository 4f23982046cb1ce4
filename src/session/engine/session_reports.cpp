#include "session/engine/session_reports.hpp"

#include <algorithm>

#include "base/emulated_link.hpp"
#include "memory/placement.hpp"
#include "memory/process_pool.hpp"
#include "policy/stage.hpp"
#include "policy/sync.hpp"

namespace gradwire::session {
namespace {

using When = PartMaker::When;

// The groups whose codec at this step is that of a warm-up.
std::vector<observe::Knowledge::WarmUp> warm_ups_of(const plan::Plan& plan, std::uint64_t step) {
  std::vector<observe::Knowledge::WarmUp> warm_ups;
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    const auto bucket = std::find_if(plan.buckets.begin(), plan.buckets.end(), [i](const plan::Bucket& each) {
      return each.group == i && each.levels.empty() && each.stages.size() > 1;
    });
    if (bucket == plan.buckets.end()) {
      continue;
    }
    if (const policy::Stage& stage = policy::stage_at(bucket->stages, step); stage.until_step != policy::kForever) {
      warm_ups.push_back({.group = plan.groups[i].name,
                          .codec = policy::codec_text(plan.groups[i].policy),
                          .in_use = stage.codec.to_string()});
    }
  }
  return warm_ups;
}

HostMemory host_memory() {
  const memory::PagePoolStatistics pool = memory::page_pool().statistics();
  HostMemory all{.bytes_in_use = pool.in_use,
                 .peak_bytes = pool.high_water,
                 .held_bytes = pool.reserved,
                 .limit_bytes = pool.limit,
                 .fragmentation = pool.fragmentation(),
                 .pages = std::string(to_string(pool.pages)),
                 .uses = {}};
  for (std::size_t use = 0; use < pool.uses.size(); ++use) {
    all.uses.push_back({std::string(to_string(static_cast<memory::MemoryUse>(use))), pool.uses[use].in_use,
                        pool.uses[use].high_water});
  }
  return all;
}

}  // namespace

SessionStatistics statistics_of(const Core& core) {
  SessionStatistics statistics;
  const std::vector<Statistics> totals = core.runner->statistics();
  const MutexLock lock(core.progress.state);
  statistics.transport = over_emulated_link(core.runner->info().transport, emulated_link_of_job());
  statistics.rank = core.runner->info().rank;
  statistics.world_size = core.runner->info().world_size;
  statistics.steps = core.watch.steps();
  statistics.exposed_seconds = core.watch.exposed_seconds();
  statistics.comparisons = core.comparison.count();
  statistics.comparison_seconds = core.comparison.seconds();
  if (const DeviceSteps* device = core.runner->device()) {
    statistics.device_memory = device->memory();
  }
  statistics.host_memory = host_memory();
  for (std::size_t i = 0; core.plan && i < core.plan->groups.size(); ++i) {
    const plan::Group& group = core.plan->groups[i];
    statistics.groups.push_back({.name = group.name,
                                 .codec = policy::codec_text(group.policy),
                                 .algorithm = core.plan->algorithms(i),
                                 .compressed = group.policy.codec != CodecSpec::exact(),
                                 .tensors = group.tensors,
                                 .totals = i < totals.size() ? totals[i] : Statistics{},
                                 .sync = policy::to_string(group.policy.sync),
                                 .algorithm_reason = statistics.world_size > 1 ? core.plan->why_algorithms(i) : ""});
  }
  core.parts.for_each([&](const Part& part) { part.add_to(statistics); });
  return statistics;
}

observe::Snapshot snapshot_of(const Core& core) {
  observe::Snapshot snapshot{.source = core.runner->info().source, .statistics = statistics_of(core)};
  const MutexLock lock(core.progress.state);
  if (core.plan) {
    snapshot.knowledge = core.runner->known(*core.plan);
    snapshot.knowledge.warm_ups = warm_ups_of(*core.plan, core.step.number());
  }
  core.parts.for_each([&](const Part& part) { part.add_to(snapshot); });
  return snapshot;
}

std::string explain(Core& core, const std::string& beside) {
  const MutexLock lock(core.progress.state);
  core.make_plan();
  const std::string placed =
      core.settings.policy.memory.bind ? "memory nodes: " + memory::own_placement().why + '\n' : "";
  return core.plan->explain() + placed + core.parts.explain(When::with_session) + beside +
         core.parts.explain(When::with_plan);
}

}  // namespace gradwire::session
