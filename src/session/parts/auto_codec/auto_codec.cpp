#include "session/parts/auto_codec/auto_codec.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/units.hpp"
#include "observe/record.hpp"
#include "session/parts/auto_codec/device_auto_codec.hpp"
#include "session/parts/auto_codec/level_text.hpp"

namespace gradwire::session {
namespace {

constexpr std::uint64_t kSampleEvery = 50;  // steps
constexpr double kProbeSeconds = 2e-3;
constexpr double kLeastProbe = 16 << 10;
constexpr double kProbeSteps = 16;  // a probe sends no more than so many steps: small steps cannot pay for large probes
constexpr double kMostProbe = 1 << 20;

void log_report(std::uint64_t step, const choice::LinkReport& report) {
  log(LogLevel::debug, "after step " + std::to_string(step) + ": step " + format_number(report.step_seconds * 1e3, 4) +
                           " ms, busy " + format_number(report.busy_seconds * 1e3, 4) + " ms, of which waiting " +
                           format_number(report.wait_share, 3) + ", sent " + format_rate(report.bytes_per_second) +
                           ", probed " + format_rate(report.probed));
}

}  // namespace

AutoCodec::AutoCodec(Runner& runner, Probes& probes, const plan::Plan& plan, const Policy& policy)
    : runner_(runner),
      probes_(probes),
      plan_(plan),
      given_(policy.link),
      pace_(policy.auto_options),
      choice_(plan, policy),
      mine_(plan.buckets.size(), policy.auto_options.window),
      levels_(plan.buckets.size()) {}

void AutoCodec::begin(std::uint64_t step, const StepsAhead& steps, const LinkMeasured& measured) {
  choice::Measurements measurements = calibrate(runner_, probes_, plan_, steps, given_, measured);
  measured_in_seconds_ = measurements.seconds;
  begun_ = true;
  ++revision_;
  pace_.begin(step);
  const LinkEstimate measured_link = choice::to_estimate(measurements.cluster, measurements.seconds);
  if (runner_.info().world_size > 1) {
    choice::Change change = choice_.start(step, std::move(measurements));
    change.reason = "measured in " + format_number(measured_in_seconds_ * 1000, 3) +
                    " ms: " + format_rate(choice_.measurements().cluster.inter.bytes_per_second);
    note(change);
  }
  const MutexLock lock(mutex_);  // after note(): once there is a link, reports name the chosen codecs
  link_ = measured_link;
}

// Without this, a session would seem as long-lived as the training whose state it loads, and try costly codecs at once.
void AutoCodec::load(const SavedState& state) {
  if (!begun_ || runner_.info().world_size == 1) {
    return;
  }
  pace_.begin(state.step);
  choice_.start(state.step, choice_.measurements());  // nothing was learnt since, so the choice is the same
  const MutexLock lock(mutex_);
  for (CodecSwitch& start : switches_) {
    start.step = state.step;
  }
}

void AutoCodec::tune(StepInfo& info) const {
  info.choices = choices();
  info.sample = info.step % kSampleEvery == kSampleEvery - 1;
}

void AutoCodec::step_ended(std::uint64_t /*step*/, const StepSeen& seen) {
  if (begun_) {
    mine_.add(seen);
  }
}

bool AutoCodec::due(std::uint64_t step) const { return begun_ && runner_.info().world_size > 1 && pace_.due(step); }

void AutoCodec::take(const Compared& compared) {
  const std::uint64_t step = compared.step;
  const StepMeasurements::Agreed agreed = mine_.agree(compared);
  pace_.compared(step, compared.seconds, agreed.report.step_seconds);
  const choice::AutoChoice::Decision decision = choice_.decide(step, agreed.report, agreed.samples);
  revision_ += decision.moved ? 1 : 0;
  {
    const MutexLock lock(mutex_);
    link_ = choice::to_estimate(choice_.measurements().cluster, measured_in_seconds_);
  }
  if (decision.change) {
    note(*decision.change);
  }
  if (decision.moved) {
    mine_.forget_steps();
  }
  log_report(step, agreed.report);
  if (decision.trial > 0) {
    pace_.compare_after(step + decision.trial);
    log(LogLevel::debug, "the codecs next to these are tried until step " + std::to_string(step + decision.trial));
  }
  probe(agreed.report);
}

void AutoCodec::probe(const choice::LinkReport& report) {
  if (given_ || only_the_link(report)) {
    return;
  }
  const exchange::Cluster& cluster = choice_.measurements().cluster;
  const double most = std::clamp(kProbeSteps * report.bytes_per_second * report.busy_seconds, kLeastProbe, kMostProbe);
  const auto bytes =
      static_cast<std::uint64_t>(std::clamp(cluster.inter.bytes_per_second * kProbeSeconds, kLeastProbe, most));
  const choice::Neighbours neighbours =
      cluster.ranks_per_node > 1 ? choice::neighbours_between(*plan_.tiers, runner_.info().rank)
                                 : choice::neighbours_in_ring(runner_.info().world_size, runner_.info().rank);
  const double seconds = probes_.time_exchange(neighbours.to, neighbours.from, bytes) - cluster.inter.latency_seconds;
  mine_.add_probe(cluster.ranks_per_node * static_cast<double>(bytes) / std::max(seconds, 1e-9));
}

void AutoCodec::note(const choice::Change& change) {
  const auto moves = level_changes(plan_, change.from, change.to);
  const MutexLock lock(mutex_);
  levels_ = change.to;
  for (const auto& [move, buckets] : moves) {
    switches_.push_back({change.step, move.first, move.second, buckets, change.reason, change.cause});
    observe::record({.begin = observe::ticks(),
                     .bytes = buckets,
                     .source = runner_.info().source,
                     .step = static_cast<std::uint32_t>(change.step),
                     .kind = observe::EventKind::choice});
    log(runner_.info().rank == 0 ? LogLevel::info : LogLevel::debug,
        "codec from step " + std::to_string(change.step) + " on: " + (move.first.empty() ? "" : move.first + " -> ") +
            move.second + " in " + std::to_string(buckets) + " bucket(s); " + change.reason);
  }
}

std::optional<LinkEstimate> AutoCodec::link() const {
  const MutexLock lock(mutex_);
  return link_;
}

std::vector<CodecSwitch> AutoCodec::switches() const {
  const MutexLock lock(mutex_);
  return switches_;
}

void AutoCodec::add_to(SessionStatistics& statistics) const {
  if (!link()) {
    return;
  }
  statistics.switches = switches();
  for (std::size_t i = 0; i < statistics.groups.size(); ++i) {
    if (plan_.groups[i].policy.is_auto()) {
      statistics.groups[i].codec = codec_text(i);
    }
  }
}

void AutoCodec::add_to(observe::Snapshot& snapshot) const {
  if (const auto measured = link()) {
    snapshot.knowledge.link = measured;
  }
}

std::string AutoCodec::codec_text(std::size_t group) const {
  const MutexLock lock(mutex_);
  return level_text(plan_, levels_, group);
}

std::unique_ptr<Part> make_auto_codec(const PartInputs& inputs) {
  if (!inputs.plan->is_auto()) {
    return nullptr;
  }
  Probes* probes = inputs.runner.probes();
  if (probes == nullptr) {
    return inputs.runner.info().world_size == 1 ? nullptr
                                                : std::make_unique<DeviceAutoCodec>(inputs.runner, *inputs.plan);
  }
  return std::make_unique<AutoCodec>(inputs.runner, *probes, *inputs.plan, inputs.policy);
}

}  // namespace gradwire::session
