// The collectives of buckets that are being enqueued on a device, several at a time, and the work that follows each.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "exchange/stream/stream_executor.hpp"
#include "session/device/device_calls.hpp"
#include "session/device/device_join.hpp"
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
  /// Lets small buckets be made together from the next one on.
  void join(std::uint64_t bytes) { join_ = DeviceJoin(bytes); }
  /// Takes the next bucket, and starts it, or lets it wait for the next one.
  void add(DeviceCalls::Prepared prepared);
  /// Whether a bucket waits for the next one, so that nothing of it is enqueued.
  [[nodiscard]] bool waits(std::uint64_t step, std::uint32_t bucket) const { return join_.waits(step, bucket); }
  /// Starts the buckets that wait. All ranks must call it at the same places.
  void start_waiting();
  [[nodiscard]] bool has(std::uint32_t bucket) const;
  /// Enqueues all buckets that have started completely. They get no marks of their own where the end of the step
  /// follows.
  void flush(bool ends_step = false);
  /// Makes room for a later step like `step`, which `calls` are to enqueue: for its residuals, and for what the arena
  /// holds meanwhile. `folds`: as for DeviceCalls::reserve(). `memory` is any device memory; it stands for gradients,
  /// and nobody reads it.
  void reserve(DeviceCalls& calls, const plan::Plan& plan, const StepInfo& step, bool folds, void* memory);

 private:
  void take(std::vector<DeviceFlight> flights);
  void close_enqueued(bool marks);

  exchange::StreamDevice& device_;
  DeviceResiduals& residuals_;
  DeviceMarks& marks_;
  GroupStatistics& statistics_;
  exchange::StreamExecutor executor_;
  DeviceJoin join_;
  std::deque<DeviceFlight> flights_;
};

}  // namespace gradwire::session
