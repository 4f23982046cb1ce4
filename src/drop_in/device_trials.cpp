#include "drop_in/device_trials.hpp"

#include <algorithm>
#include <utility>

namespace gradwire::drop_in {
namespace {

constexpr std::size_t kMostSteps = 256;  // that a device may be behind its host, for times of steps

}  // namespace

DeviceTrials::~DeviceTrials() {
  std::for_each(trials_.begin(), trials_.end(), [&](const Times& times) { drop(times); });
  std::for_each(steps_.begin(), steps_.end(), [&](const Step& step) { clock_.drop(step.begin); });
}

void DeviceTrials::drop(const Times& times) noexcept {
  clock_.drop(times.begin);
  clock_.drop(times.middle);
  clock_.drop(times.end);
}

void DeviceTrials::end_call() {
  leave_memory();
  free_left();
  if (exchange_.due()) {
    read_times();
    read_steps();
    gate_.say(exchange_.mine(DeviceExchange::kGate),
              [&](const choice::DeviceGate::Asked& asked) { return take_memory(asked); });
  }
}

bool DeviceTrials::take_memory(const choice::DeviceGate::Asked& asked) noexcept {
  try {
    const std::uint64_t needed = asked.rival == 0 ? 0 : needs_(asked);
    copy_ = memory_.allocate(*asked.sizes.rbegin());
    frames_ = {};
    if (copy_ != nullptr && needed > 0) {
      frames_ = {memory_.allocate(needed), needed};
    }
    if (copy_ != nullptr && (needed == 0 || frames_.data() != nullptr)) {
      return true;
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): as where there is no memory
  }
  frames_ = {};
  if (copy_ != nullptr) {
    memory_.free(std::exchange(copy_, nullptr));  // nothing has used it
  }
  return false;
}

void DeviceTrials::leave_memory() {
  if (copy_ == nullptr || gate_.needs_memory()) {
    return;
  }
  const auto until = device_.mark();
  leaving_.push_back({until, std::exchange(copy_, nullptr)});
  if (!frames_.empty()) {
    leaving_.push_back({until, std::exchange(frames_, {}).data()});
  }
}

void DeviceTrials::free_left() {
  while (!leaving_.empty() && device_.reached(leaving_.front().until)) {
    memory_.free(leaving_.front().memory);
    leaving_.pop_front();
  }
}

// The copy stays, since the trial of a routed call may still be to come.
void DeviceTrials::give_back(std::chrono::milliseconds timeout) {
  if (!leaving_.empty()) {
    device_.wait(leaving_.back().until, timeout);
    free_left();
  }
}

// Calls of different streams end in any order. One that has not ended delays the reading of those behind it.
void DeviceTrials::read_times() {
  while (!trials_.empty() && clock_.reached(trials_.front().end)) {
    const Times& times = trials_.front();
    const auto first = clock_.seconds(times.begin, times.middle);
    const auto second = clock_.seconds(times.middle, times.end);
    if (first && second) {
      const bool rival_first = times.trial.rival_first;
      gate_.timed(times.trial.number, rival_first ? *second : *first, rival_first ? *first : *second);
    }
    drop(times);
    trials_.pop_front();
  }
}

// A step ends where the next one begins. Numbers that do not follow upon each other are of steps with a break between.
void DeviceTrials::read_steps() {
  while (steps_.size() > 1 && clock_.reached(steps_[1].begin)) {
    const auto took = clock_.seconds(steps_[0].begin, steps_[1].begin);
    if (took && steps_[1].number == steps_[0].number + 1) {
      gate_.step_took(steps_[0].number, *took);
    }
    clock_.drop(steps_.front().begin);
    steps_.pop_front();
  }
}

void DeviceTrials::begin_step(std::uint64_t step, void* stream) {
  if (steps_.size() >= kMostSteps) {
    read_steps();
  }
  if (steps_.size() < kMostSteps) {
    steps_.push_back({.number = step, .begin = clock_.mark(stream)});
  }
}

int DeviceTrials::make(const choice::DeviceGate::Trial& trial, void* stream, const Make& for_the_job,
                       const Make& rival) {
  Times times{.trial = trial};
  times.begin = clock_.mark(stream);
  int code = 0;
  try {
    code = (trial.rival_first ? rival : for_the_job)();
    times.middle = clock_.mark(stream);
    if (code == 0) {
      code = (trial.rival_first ? for_the_job : rival)();
    }
    times.end = clock_.mark(stream);
  } catch (...) {
    drop(times);
    throw;
  }
  if (code == 0) {
    trials_.push_back(times);
  } else {
    drop(times);
  }
  return code;
}

}  // namespace gradwire::drop_in
