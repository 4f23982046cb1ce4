// The device memory of a session's steps: reserves that of coming ones, for captures and for trials of codec = "auto",
// and watches how much there is.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "exchange/stream/stream_device.hpp"
#include "session/device/device_calls.hpp"
#include "session/device/device_held.hpp"
#include "session/device/device_memory_watch.hpp"
#include "session/device/device_pipeline.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

class DeviceRoom final : public StepRoom {
 public:
  /// All references must outlive this. `memory`: any memory of the device, which stands for gradients in dry runs.
  DeviceRoom(exchange::StreamDevice& device, DeviceHeld& held, DevicePipeline& pipeline, DeviceCalls& calls,
             void* memory, std::chrono::milliseconds timeout)
      : device_(device), held_(held), pipeline_(pipeline), calls_(calls), memory_(memory), timeout_(timeout) {}

  void reserve(const plan::Plan& plan, const StepInfo& step) override;
  [[nodiscard]] bool take(const plan::Plan& plan, const StepInfo& step, std::span<const std::size_t> levels) override;
  void give_back() override;

  void note() { watch_.note(device_); }
  /// Returns what note() saw last. Any thread may call this.
  [[nodiscard]] DeviceMemory latest() const { return watch_.latest(); }

 private:
  void reserve_levels(const plan::Plan& plan, const StepInfo& step, std::span<const std::size_t> levels);

  exchange::StreamDevice& device_;
  DeviceHeld& held_;
  DevicePipeline& pipeline_;
  DeviceCalls& calls_;
  void* memory_;
  std::chrono::milliseconds timeout_;
  DeviceMemoryWatch watch_;
  struct Before {
    std::size_t slabs;
    std::vector<DeviceResiduals::Ranges> room;
    DeviceResiduals::Frees frees;
  };
  std::optional<Before> before_ = {};  // the latest take()
};

}  // namespace gradwire::session
