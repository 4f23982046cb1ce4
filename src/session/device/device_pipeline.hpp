// The collectives of buckets that are being enqueued on a device, several at a time, and the work that follows each.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "exchange/stream/stream_executor.hpp"
#include "session/device/device_calls.hpp"
#include "session/device/device_marks.hpp"
#include "session/runner/group_statistics.hpp"

namespace gradwire::session {

class DevicePipeline {
 public:
  /// All references must outlive this.
  DevicePipeline(exchange::StreamDevice& device, DeviceResiduals& residuals, DeviceMarks& marks,
                 GroupStatistics& statistics)
      : device_(device), residuals_(residuals), marks_(marks), statistics_(statistics), executor_(device.backend()) {}

  [[nodiscard]] exchange::StreamExecutor& executor() noexcept { return executor_; }
  /// Takes a bucket that executor() has started.
  void add(DeviceFlight flight);
  [[nodiscard]] bool has(std::uint32_t bucket) const;
  /// Enqueues all buckets completely. They get no marks of their own where the end of the step follows.
  void flush(bool ends_step = false);

 private:
  void close_enqueued(bool marks);

  exchange::StreamDevice& device_;
  DeviceResiduals& residuals_;
  DeviceMarks& marks_;
  GroupStatistics& statistics_;
  exchange::StreamExecutor executor_;
  std::deque<DeviceFlight> flights_;
};

}  // namespace gradwire::session
