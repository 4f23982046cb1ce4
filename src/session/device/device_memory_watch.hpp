// How much memory a session takes on its device.
#pragma once

#include <mutex>

#include "exchange/stream/stream_device.hpp"
#include "gradwire/statistics.hpp"

namespace gradwire::session {

class DeviceMemoryWatch {
 public:
  void note(exchange::StreamDevice& device) {
    const memory::Footprint footprint = device.arena().footprint();
    const std::lock_guard lock(mutex_);
    latest_ = {footprint.bytes_in_use, footprint.peak_bytes, footprint.held_bytes, device.pinned_bytes()};
  }
  /// Any thread.
  [[nodiscard]] DeviceMemory latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

 private:
  mutable std::mutex mutex_;
  DeviceMemory latest_;
};

}  // namespace gradwire::session
