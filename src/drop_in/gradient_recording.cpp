#include "drop_in/gradient_recording.hpp"

#include <exception>
#include <functional>
#include <utility>

namespace gradwire::drop_in {
namespace {

// "call-0003-1048576", or with the buffer's name "call-0003-1048576-layer.weight".
std::string name_of_call(std::uint64_t order, std::uint64_t count, std::string_view name) {
  std::string number = std::to_string(order);
  number.insert(0, number.size() < 4 ? 4 - number.size() : 0, '0');
  return "call-" + number + "-" + std::to_string(count) + (name.empty() ? "" : "-") + std::string(name);
}

}  // namespace

GradientRecording::GradientRecording(const RecordTarget& target, int rank, int ranks)
    : target_(target), recorder_(target.directory, rank, ranks) {}

bool GradientRecording::call(Function function, ConstView input, std::string_view name) noexcept {
  const MutexLock lock(mutex_);
  if (state_ != State::going_on) {
    return false;
  }
  try {
    ++calls_;
    const std::uint64_t identity =
        name.empty() ? reinterpret_cast<std::uintptr_t>(input.data) : std::hash<std::string_view>()(name);
    const std::optional<StepTracker::Place> place =
        place_of({.function = function, .dtype = input.dtype, .count = input.count},
                 {.identity = identity, .named = !name.empty(), .fence = std::exchange(fence_, false)});
    if (place) {
      record(*place, input, name);
    }
  } catch (const std::exception& error) {
    state_ = State::failed;
    why_ = error.what();
  }
  return state_ == State::going_on;
}

void GradientRecording::other_call() noexcept {
  const MutexLock lock(mutex_);
  fence_ = true;
}

std::optional<StepTracker::Place> GradientRecording::place_of(const Signature& call, const Hint& hint) {
  if (alone_ > 0 || (steps_ == 0 && tracker_.period() == 0 && calls_ > kMostCalls)) {
    return StepTracker::Place{.step = 0, .order = alone_++};
  }
  const std::optional<StepTracker::Place> place = tracker_.next(call, hint);
  if (!place && tracker_.due()) {
    const std::size_t proposal = tracker_.proposal();
    tracker_.adopt(proposal == 0 ? tracker_.shortest() : proposal);
  }
  if (!place) {
    in_step_ = false;
    return std::nullopt;
  }
  if (place->order == 0) {
    in_step_ = true;
    ++steps_;
  }
  if (!in_step_) {
    return std::nullopt;
  }
  return StepTracker::Place{.step = steps_ - 1, .order = place->order};
}

void GradientRecording::record(const StepTracker::Place& place, ConstView input, std::string_view name) {
  recorder_.add(place.step, name_of_call(place.order, input.count, name), input);
  const bool last_of_step = alone_ > 0 || place.order + 1 == tracker_.period();
  if (last_of_step) {
    recorder_.write_index();
  }
  if (last_of_step && (alone_ > 0 ? alone_ : steps_) >= target_.steps) {
    state_ = State::complete;
  }
}

std::string GradientRecording::summary() const {
  const std::string folder = target_.directory;
  if (state_ == State::failed) {
    return "gradients are no longer recorded, and the job goes on: " + why_;
  }
  if (recorder_.gradients() == 0) {
    return "no gradients were recorded in " + folder + ": no step was found in " + std::to_string(calls_) +
           " sums of floats; steps are recorded once they have been seen twice, and 16 calls at least";
  }
  return std::to_string(recorder_.gradients()) + " buffers of " +
         (alone_ > 0 ? "calls, in which no steps were found," : std::to_string(steps_) + " steps") +
         " are recorded in " + folder + "; gradwire ratio " + folder + " shows what codecs do to them";
}

std::string GradientRecording::end() noexcept {
  const MutexLock lock(mutex_);
  if (told_) {
    return {};
  }
  told_ = true;
  try {
    if (state_ == State::going_on && recorder_.gradients() > 0) {
      recorder_.write_index();
    }
  } catch (const std::exception& error) {
    state_ = State::failed;
    why_ = error.what();
  }
  try {
    return summary();
  } catch (...) {
    return {};
  }
}

}  // namespace gradwire::drop_in
