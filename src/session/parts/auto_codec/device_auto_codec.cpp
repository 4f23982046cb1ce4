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

// All steps are of one class.
constexpr choice::ChoiceClass kSteps{.function = choice::Function::nccl_all_reduce};
constexpr std::uint64_t kAnySize = 1;

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

DeviceAutoCodec::DeviceAutoCodec(Runner& runner, const plan::Plan& plan, Clock clock)
    : runner_(runner), plan_(plan), clock_(clock ? std::move(clock) : Clock(monotonic_seconds)) {
  std::size_t levels = 1;
  for (const plan::Bucket& bucket : plan.buckets) {
    levels = std::max(levels, bucket.levels.size());
  }
  for (std::size_t level = 0; level < levels; ++level) {
    choices_.push_back(uniform_choices(plan, level));
  }
}

void DeviceAutoCodec::agreed(const Agreement& agreement) {
  note(agreement.step, 0, "the library's own sums, until a codec has been measured to be faster");
  begin_turn(agreement.step);
}

// The times so far are of the training before.
void DeviceAutoCodec::resume(std::uint64_t step) {
  latest_ = step - std::min<std::uint64_t>(step, 1);
  intact_ = false;
}

void DeviceAutoCodec::tune(StepInfo& info) const {
  const bool tries = level_ != turn_.way;
  DeviceSteps* const device = tries ? runner_.device() : nullptr;
  info.choices = choices_[device != nullptr && device->capturing() ? turn_.way : level_];
}

void DeviceAutoCodec::step_ended(std::uint64_t step, const StepSeen& /*seen*/) {
  intact_ = intact_ && step == latest_ + 1;
  latest_ = step;
  ++steps_;
  exchanges_ = steps_ % kStepsApart == 0;
  if (steps_ % kStepsInTurn != 0) {
    waits_ = turn_.trial.has_value();
    if (waits_) {
      set_level(turn_.trial->rival_first ? turn_.way : turn_.trial->rival);
    }
    return;
  }
  ended_ = turn_.trial.has_value();
  if (ended_) {
    trial_ = *turn_.trial;
  }
  const bool intact = intact_;
  begin_turn(step + 1);
  waits_ = ended_ || turn_.trial.has_value();
  ended_ = ended_ && intact;
}

void DeviceAutoCodec::begin_turn(std::uint64_t step) {
  const std::size_t before = turn_.way;
  turn_ = gate_.next(kSteps, kAnySize, choices_.size());
  intact_ = turn_.trial.has_value();
  set_level(turn_.trial && turn_.trial->rival_first ? turn_.trial->rival : turn_.way);
  if (turn_.way != before) {
    const auto seconds = gate_.compared(kSteps).value();
    note(step, turn_.way,
         "a step takes " + format_number(seconds[turn_.way] * 1e3, 4) + " ms instead of " +
             format_number(seconds[before] * 1e3, 4) + " ms");
  }
}

void DeviceAutoCodec::set_level(std::size_t level) {
  revision_ += level == level_ ? 0 : 1;
  level_ = level;
}

// A trial makes no copies.
void DeviceAutoCodec::append(std::vector<double>& numbers) {
  if (exchanges_) {
    std::vector<std::uint32_t> words(choice::DeviceGate::kWords);
    gate_.say(words, [](const choice::DeviceGate::Asked& /*asked*/) { return true; });
    numbers.insert(numbers.end(), words.begin(), words.end());
  }
}

void DeviceAutoCodec::take(const Compared& compared) {
  const double now = clock_();
  if (waits_ && steps_ % kStepsInTurn != 0) {
    first_seconds_ = now - mark_;
  } else if (std::exchange(ended_, false)) {
    const double second = now - mark_;
    gate_.timed(trial_.number, trial_.rival_first ? second : first_seconds_,
                trial_.rival_first ? first_seconds_ : second);
  }
  mark_ = now;
  if (!exchanges_) {
    return;
  }
  std::vector<std::uint32_t> largest(choice::DeviceGate::kWords, 0);
  for (const std::span<const double> theirs : compared.ranks) {
    for (std::size_t i = 0; i < largest.size(); ++i) {
      largest[i] = std::max(largest[i], static_cast<std::uint32_t>(theirs[i]));
    }
  }
  gate_.heard(largest);
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
