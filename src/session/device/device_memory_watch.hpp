// Watches how much memory a session takes on its device.
#pragma once

#include "base/mutex.hpp"
#include "exchange/stream/stream_device.hpp"
#include "gradwire/statistics.hpp"

namespace gradwire::session {

class DeviceMemoryWatch {
 public:
  void note(exchange::StreamDevice& device) {
    const memory::Footprint footprint = device.arena().footprint();
    const MutexLock lock(mutex_);
    latest_ = {footprint.bytes_in_use, footprint.peak_bytes, footprint.held_bytes, device.pinned_bytes()};
  }
  /// Any thread may call this.
  [[nodiscard]] DeviceMemory latest() const {
    const MutexLock lock(mutex_);
    return latest_;
  }

 private:
  mutable Mutex mutex_;
  DeviceMemory latest_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::session
