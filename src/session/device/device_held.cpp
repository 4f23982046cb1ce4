#include "session/device/device_held.hpp"

#include <string>
#include <utility>

namespace gradwire::session {
namespace {

using exchange::CurrentDevice;

}  // namespace

void require_no_capture(exchange::StreamDevice& device, const char* call) {
  if (device.capturing()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) + ": not while the stream is being captured into a graph; nothing runs until then");
  }
}

std::vector<SavedResidual> DeviceHeld::save_residuals(const plan::Plan& plan) {
  require_no_capture(device_, "save");
  const CurrentDevice current(device_);
  device_.follow_caller();
  try {
    return residuals_.save(plan, timeout_);
  } catch (const Error& error) {
    if (!remembers_ || error.code() == ErrorCode::timeout) {
      throw;
    }
  }
  // The world is over. No message was on its way between its steps, so the residuals are whole.
  device_.end_messages(timeout_);
  return residuals_.save(plan, timeout_);
}

void DeviceHeld::load_residuals(exchange::ResidualStore residuals, const plan::Plan& plan) {
  require_no_capture(device_, "load");
  const CurrentDevice current(device_);
  residuals_.load(std::move(residuals), plan);
}

void DeviceHeld::scale_residuals(float factor) {
  require_no_capture(device_, "set_loss_scale");
  const CurrentDevice current(device_);
  device_.follow_caller();
  residuals_.scale(factor);
  device_.lead_caller();
}

// The world is over: its messages do not arrive any more, and none may write to gradients once the step is made again.
void DeviceHeld::undo_step() {
  const CurrentDevice current(device_);
  device_.end_messages(timeout_);
  residuals_.undo();
}

}  // namespace gradwire::session
