#include "session/calls/gradient_recording.hpp"

#include <exception>
#include <string>

#include "base/log.hpp"
#include "base/record_target.hpp"
#include "session/calls/session_state.hpp"

namespace gradwire {
namespace session {

GradientRecording::GradientRecording(const std::filesystem::path& directory, std::uint64_t steps, const Engine& engine)
    : recorder_(directory, engine.runner->info().rank, engine.runner->info().world_size), left_(steps) {}

void GradientRecording::ready(Engine& engine, TensorId id, const View* given) noexcept {
  const auto tensor = static_cast<std::uint32_t>(id);
  if (engine.no_sync || tensor >= engine.tensors.size()) {
    return;
  }
  const View& added = engine.tensors.added(tensor);
  const View gradient = given == nullptr ? added : *given;
  if (gradient.count != added.count || gradient.dtype != added.dtype ||
      (gradient.data == nullptr && gradient.count > 0)) {
    return;
  }
  const MutexLock lock(mutex_);
  if (failed_) {
    return;
  }
  try {
    record(engine, tensor, gradient);
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void GradientRecording::record(Engine& engine, std::uint32_t tensor, const View& gradient) {
  std::uint64_t step = 0;
  {
    const MutexLock lock(engine.progress.state);
    if (engine.step.faults.failed() || engine.step.buckets.is_ready(tensor)) {
      return;  // ready() refuses the call, and the gradient may be under way
    }
    step = engine.step.number();
  }
  recorder_.add(step, engine.tensors.name(tensor), gradient);
}

bool GradientRecording::step_over(bool counts) noexcept {
  const MutexLock lock(mutex_);
  if (failed_ || !counts) {
    return failed_;
  }
  try {
    recorder_.write_index();
  } catch (const std::exception& error) {
    fail(error.what());
    return true;
  }
  return --left_ == 0;
}

void GradientRecording::fail(const char* why) noexcept {
  failed_ = true;
  try {
    log(LogLevel::warning, std::string("gradients are no longer recorded, and training goes on: ") + why);
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no memory for the line
  }
}

}  // namespace session

void Session::record_gradients(const std::filesystem::path& directory, std::uint64_t steps) {
  session::Engine& engine = state_->engine();
  engine.checked([&] {
    if (engine.runner->device() != nullptr) {
      throw Error(
          ErrorCode::unsupported,
          "record_gradients: not in a session over device memory; copy the gradients to the host, and save them "
          "there");
    }
    if (steps == 0 || steps > RecordTarget::kMostSteps) {
      throw Error(ErrorCode::invalid_argument, "record_gradients: steps is " + std::to_string(steps) + "; it is 1 to " +
                                                   std::to_string(RecordTarget::kMostSteps));
    }
    engine.require_between_steps("record_gradients");
    state_->recording = std::make_unique<session::GradientRecording>(directory, steps, engine);
  });
}

}  // namespace gradwire
