// The residuals that error feedback keeps for a session over device memory, and their changes in a step.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "session/device/device_residuals.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

/// Throws Error(invalid_argument) while the caller's stream is captured.
void require_no_capture(exchange::StreamDevice& device, const char* call);

class DeviceHeld final : public HeldByRunner, public StepUndo {
 public:
  /// `device` must outlive this.
  DeviceHeld(exchange::StreamDevice& device, std::chrono::milliseconds timeout)
      : device_(device), timeout_(timeout), residuals_(device) {}

  [[nodiscard]] DeviceResiduals& residuals() noexcept { return residuals_; }
  /// Whether a step may be undone, so that its changes are remembered.
  [[nodiscard]] bool remembers() const noexcept { return remembers_; }

  [[nodiscard]] std::vector<SavedResidual> save_residuals(const plan::Plan& plan) override;
  void load_residuals(exchange::ResidualStore residuals, const plan::Plan& plan) override;
  void scale_residuals(float factor) override;
  [[nodiscard]] std::uint64_t residual_bytes() override { return residuals_.bytes(); }

  void remember() override {
    remembers_ = true;
    residuals_.remember();
  }
  void commit() override { residuals_.commit(); }
  void undo_step() override;

 private:
  exchange::StreamDevice& device_;
  std::chrono::milliseconds timeout_;
  DeviceResiduals residuals_;
  bool remembers_ = false;  // the changes of a step can be undone
};

}  // namespace gradwire::session
