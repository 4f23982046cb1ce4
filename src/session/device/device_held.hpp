// What error feedback of a session over device memory holds, and what a step changes of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "session/device/device_residuals.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

/// Error(invalid_argument) while the caller's stream is captured.
void require_no_capture(exchange::StreamDevice& device, const char* call);

class DeviceHeld final : public HeldByRunner, public StepUndo {
 public:
  /// `device` outlives this.
  DeviceHeld(exchange::StreamDevice& device, const RunnerInfo& info, std::chrono::milliseconds timeout)
      : device_(device), timeout_(timeout), residuals_(device, info.rank, info.world_size) {}

  [[nodiscard]] DeviceResiduals& residuals() noexcept { return residuals_; }
  /// Whether a step may be undone.
  [[nodiscard]] bool remembers() const noexcept { return remembers_; }

  [[nodiscard]] std::vector<SavedState::Residual> save_residuals(const plan::Plan& plan) override;
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
  bool remembers_ = false;  // what a step changes
};

}  // namespace gradwire::session
