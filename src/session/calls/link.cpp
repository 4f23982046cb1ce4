#include "session/calls/link.hpp"

#include <chrono>

#include "base/elapsed.hpp"
#include "base/mutex.hpp"
#include "choice/link_measurement.hpp"
#include "session/parts/auto_codec/auto_codec.hpp"

namespace gradwire::session {

LinkEstimate link_of(Engine& engine) {
  engine.progress.require_communication("link");
  const auto begin = std::chrono::steady_clock::now();
  Probes* probes = engine.runner->probes();
  {
    const MutexLock lock(engine.progress.state);
    engine.step.faults.throw_if_failed();
    if (const auto* chooser = engine.parts.find<AutoCodec>()) {
      if (const auto known = chooser->link()) {
        return *known;
      }
    }
    if (probes == nullptr) {
      throw Error(ErrorCode::unsupported,
                  "link: links between devices are not measured yet; ask a session over host memory");
    }
    engine.step.require_between("link");
  }
  const exchange::Tiers tiers =
      engine.settings.policy.tiers.ranks_per_node
          ? exchange::Tiers::in_rows(*engine.settings.policy.tiers.ranks_per_node, engine.runner->info().world_size)
          : exchange::Tiers(engine.runner->info().nodes, engine.runner->info().world_size);
  LinkEstimate estimate;
  engine.on_wire([&] { estimate = choice::to_estimate(measure_cluster(*engine.runner, *probes, tiers), 0); });
  estimate.measured_in_seconds = seconds_since(begin);
  return estimate;
}

}  // namespace gradwire::session
