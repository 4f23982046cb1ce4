#include "session/parts/auto_codec/device_auto_codec.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "observe/record.hpp"
#include "session/parts/auto_codec/level_text.hpp"
#include "session/runner/level_at.hpp"

namespace gradwire::session {
namespace {

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns how the buckets are reduced, by level.
std::vector<std::vector<BucketChoice>> choices_of(const plan::Plan& plan) {
  std::size_t levels = 1;
  for (const plan::Bucket& bucket : plan.buckets) {
    levels = std::max(levels, bucket.levels.size());
  }
  std::vector<std::vector<BucketChoice>> choices;
  for (std::size_t level = 0; level < levels; ++level) {
    choices.push_back(uniform_choices(plan, level));
  }
  return choices;
}

// Returns for each level whether steps at that level leave residuals.
std::vector<bool> leaves_residuals(const plan::Plan& plan, std::size_t levels) {
  std::vector<bool> leaves(levels);
  for (const plan::Bucket& bucket : plan.buckets) {
    for (std::size_t level = 0; level < levels && !bucket.levels.empty(); ++level) {
      leaves[level] = leaves[level] || bucket.levels[std::min(level, bucket.levels.size() - 1)].stage.error_feedback;
    }
  }
  return leaves;
}

}  // namespace

DeviceAutoCodec::DeviceAutoCodec(Runner& runner, const plan::Plan& plan, Clock clock)
    : runner_(runner),
      plan_(plan),
      clock_(clock ? std::move(clock) : Clock(monotonic_seconds)),
      choices_(choices_of(plan)),
      pairs_(gate_, leaves_residuals(plan, choices_.size())) {}

void DeviceAutoCodec::agreed(const Agreement& agreement) {
  note(agreement.step, 0, "the library's own sums, until a codec has been measured to be faster");
  weighted_ = agreement.steps.weighted;
  pairs_.begin();
  note_change(agreement.step);
}

// The times so far are of the training before.
void DeviceAutoCodec::load(const SavedState& state) { pairs_.go_on_from(state.step); }

void DeviceAutoCodec::tune(StepInfo& info) const {
  const bool tries = pairs_.way() != pairs_.in_use();
  DeviceSteps* const device = tries ? runner_.device() : nullptr;
  info.choices = choices_[device != nullptr && device->capturing() ? pairs_.in_use() : pairs_.way()];
}

void DeviceAutoCodec::step_ended(std::uint64_t step, const StepSeen& /*seen*/) {
  pairs_.step_ended(step);
  note_change(step + 1);
}

void DeviceAutoCodec::note_change(std::uint64_t step) {
  const std::size_t before = std::exchange(noted_, pairs_.in_use());
  if (noted_ != before) {
    const auto seconds = gate_.compared(StepPairs::kClass).value();
    note(step, noted_,
         "a step takes " + format_number(seconds[noted_] * 1e3, 4) + " ms instead of " +
             format_number(seconds[before] * 1e3, 4) + " ms");
  }
}

// A trial makes no copies, but its steps need memory as a job's own: for frames, and for residuals that another codec
// leaves.
bool DeviceAutoCodec::has_memory(const choice::DeviceGate::Asked& asked) {
  const std::size_t levels[] = {pairs_.in_use(), asked.rival};
  const StepInfo step{.step = static_cast<std::uint32_t>(pairs_.latest() + 1), .weighted = weighted_};
  DeviceSteps* const device = runner_.device();
  took_memory_ = device != nullptr && device->room().take(plan_, step, levels);
  return took_memory_;
}

void DeviceAutoCodec::append(std::vector<double>& numbers) {
  if (exchanges()) {
    std::vector<std::uint32_t> words(choice::DeviceGate::kWords);
    gate_.say(words, [this](const choice::DeviceGate::Asked& asked) { return has_memory(asked); });
    numbers.insert(numbers.end(), words.begin(), words.end());
  }
}

void DeviceAutoCodec::take(const Compared& compared) {
  pairs_.met(clock_());
  if (!exchanges()) {
    return;
  }
  std::vector<std::uint32_t> largest(choice::DeviceGate::kWords, 0);
  for (const std::span<const double> theirs : compared.ranks) {
    for (std::size_t i = 0; i < largest.size(); ++i) {
      largest[i] = std::max(largest[i], static_cast<std::uint32_t>(theirs[i]));
    }
  }
  gate_.heard(largest);
  if (std::exchange(took_memory_, false) && !gate_.needs_memory()) {  // another rank has not enough
    runner_.device()->room().give_back();
  }
}

void DeviceAutoCodec::note(std::uint64_t step, std::size_t level, const std::string& reason) {
  choice::Levels to;
  for (const BucketChoice& choice : choices_[level]) {
    to.push_back(choice.level);
  }
  const MutexLock lock(mutex_);
  const auto changes = level_changes(plan_, levels_, to);
  levels_ = std::move(to);
  for (const auto& [change, buckets] : changes) {
    switches_.push_back(
        {step, change.first, change.second, buckets, reason, change.first.empty() ? "start" : "faster"});
    observe::record({.begin = observe::ticks(),
                     .bytes = buckets,
                     .source = runner_.info().source,
                     .step = static_cast<std::uint32_t>(step),
                     .kind = observe::EventKind::choice});
    log(runner_.info().rank == 0 ? LogLevel::info : LogLevel::debug,
        "codec from step " + std::to_string(step) + " on: " + (change.first.empty() ? "" : change.first + " -> ") +
            change.second + " in " + std::to_string(buckets) + " bucket(s); " + reason);
  }
}

void DeviceAutoCodec::add_to(SessionStatistics& statistics) const {
  const MutexLock lock(mutex_);
  if (levels_.empty()) {
    return;
  }
  statistics.switches = switches_;
  for (std::size_t i = 0; i < statistics.groups.size(); ++i) {
    if (plan_.groups[i].policy.is_auto()) {
      statistics.groups[i].codec = level_text(plan_, levels_, i);
    }
  }
}

}  // namespace gradwire::session
