// Events of the CUDA driver that the process has loaded. The drop-in is not linked with it.
#pragma once

#include <cuda.h>

#include "drop_in/device_clock.hpp"

namespace gradwire::nccl_preload {

/// Returns a function of the libcuda that the process has loaded; null if it has none.
[[nodiscard]] void* driver_function(const char* name) noexcept;

/// Functions of the driver. It exports these names with these signatures since the first CUDA; the header may map them
/// to newer ones.
struct DriverEvents {
  CUresult (*create)(CUevent*, unsigned int) = nullptr;
  CUresult (*record)(CUevent, CUstream) = nullptr;
  CUresult (*query)(CUevent) = nullptr;
  CUresult (*elapsed)(float*, CUevent, CUevent) = nullptr;
  CUresult (*destroy)(CUevent) = nullptr;
  CUresult (*exchange_capture_mode)(CUstreamCaptureMode*) = nullptr;

  [[nodiscard]] bool complete() const noexcept {
    return create != nullptr && record != nullptr && query != nullptr && elapsed != nullptr && destroy != nullptr;
  }
};
[[nodiscard]] const DriverEvents& driver_events() noexcept;

/// Keeps a capture by another thread from failing because this thread queries an event.
class CaptureExempt {
 public:
  CaptureExempt() noexcept { exchange(); }
  ~CaptureExempt() { exchange(); }
  CaptureExempt(const CaptureExempt&) = delete;
  CaptureExempt& operator=(const CaptureExempt&) = delete;

 private:
  void exchange() noexcept {
    if (driver_events().exchange_capture_mode != nullptr) {
      driver_events().exchange_capture_mode(&mode_);
    }
  }
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// Marks are events on the job's streams. Without a driver there are none.
class EventClock final : public drop_in::DeviceClock {
 public:
  [[nodiscard]] Mark mark(void* stream) override;
  [[nodiscard]] bool reached(Mark mark) override;
  [[nodiscard]] std::optional<double> seconds(Mark begin, Mark end) override;
  void drop(Mark mark) noexcept override;
};

}  // namespace gradwire::nccl_preload
