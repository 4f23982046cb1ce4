// What a session counts, and what it tells in the log while it runs.
#include "observe/record.hpp"
#include "observe/sources.hpp"
#include "policy/stage.hpp"
#include "policy/sync.hpp"
#include "session/logging.hpp"
#include "session/session_state.hpp"

namespace gradwire {

SessionStatistics Session::State::statistics() const {
  SessionStatistics statistics;
  const std::vector<Statistics> totals = runner->statistics();
  const std::lock_guard lock(progress.state);
  statistics.transport = runner->info().transport;
  statistics.rank = runner->info().rank;
  statistics.world_size = runner->info().world_size;
  statistics.steps = watch.steps();
  statistics.exposed_seconds = watch.exposed_seconds();
  statistics.commit_seconds = elastic ? elastic->commit_seconds() : 0;
  statistics.comparisons = comparison.count();
  statistics.comparison_seconds = comparison.seconds();
  if (const session::DeviceSteps* device = runner->device()) {
    statistics.device_memory = device->memory();
  }
  const bool begun = auto_codec && step.has_agreed();
  statistics.switches = begun ? auto_codec->switches() : std::vector<CodecSwitch>();
  const std::vector<Lateness> ages = modes ? modes->ages() : std::vector<Lateness>();
  for (std::size_t i = 0; plan && i < plan->groups.size(); ++i) {
    const plan::Group& group = plan->groups[i];
    statistics.groups.push_back(
        {.name = group.name,
         .codec = begun && group.policy.is_auto() ? auto_codec->codec_text(i) : policy::codec_text(group.policy),
         .algorithm = plan->algorithms(i),
         .compressed = group.policy.codec != CodecSpec::exact(),
         .tensors = group.tensors,
         .totals = i < totals.size() ? totals[i] : Statistics{},
         .sync = policy::to_string(group.policy.sync),
         .late = i < ages.size() ? ages[i] : Lateness{},
         .algorithm_reason = statistics.world_size > 1 ? plan->why_algorithms(i) : ""});
  }
  return statistics;
}

observe::Knowledge Session::State::known() const {
  const std::lock_guard lock(progress.state);
  if (!plan) {
    return {};
  }
  observe::Knowledge known = runner->known(*plan);
  if (auto_codec && step.has_agreed()) {
    known.link = auto_codec->link();
  }
  return known;
}

// A step of a millisecond must not pay for it each time.
void Session::State::publish(bool last) noexcept {
  constexpr std::chrono::milliseconds kInterval{500};
  const auto now = std::chrono::steady_clock::now();
  if (!observe::on() || (!last && published && now - *published < kInterval)) {
    return;
  }
  published = now;
  try {
    observe::publish({.source = runner->info().source,
                      .statistics = statistics(),
                      .slow = rank_comparison ? std::optional(rank_comparison->state()) : std::nullopt,
                      .knowledge = known(),
                      .last = last});
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for it, which must not end a step
  }
}

void Session::State::tell(const StepOutcome& outcome, std::chrono::steady_clock::time_point now) {
  if (runner->info().rank != 0) {
    return;
  }
  if (outcome.nonfinite && !outcome.skipped && !told_nonfinite) {
    told_nonfinite = true;
    log(LogLevel::warning,
        "step " + std::to_string(outcome.step) +
            ": NaN or Inf in a gradient, which all ranks got; Nonfinite::skip leaves such steps out. Told once; "
            "StepOutcome::nonfinite says it of every step");
  }
  if (session::logs(LogLevel::info) && status.due(now)) {
    const SessionStatistics seen = statistics();
    const Statistics all = seen.all();
    log(LogLevel::info, status.tell({.step = outcome.step,
                                     .steps = seen.steps,
                                     .exposed_seconds = seen.exposed_seconds,
                                     .calls = all.calls,
                                     .ratio = all.ratio()},
                                    now));
  }
}

}  // namespace gradwire
