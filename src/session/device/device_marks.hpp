// What was enqueued on a device and how far it has come: buckets of the last two steps, and steps that have not ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "exchange/stream/stream_device.hpp"

namespace gradwire::session {

class DeviceMarks {
 public:
  using Point = exchange::StreamDevice::Point;

  DeviceMarks(exchange::StreamDevice& device, int rank) : device_(device), rank_(rank) {}

  /// The step that is enqueued now.
  void begin_step(std::uint64_t step) noexcept { step_ = step; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  /// All of the bucket is enqueued.
  void add(std::uint32_t bucket) { buckets_.push_back({step_, bucket, device_.mark()}); }
  /// All of the step is.
  void end_step();
  /// Where the device has done the bucket, or its step; nothing if it has none of them left.
  [[nodiscard]] std::optional<Point> find(std::uint64_t step, std::uint32_t bucket) const;
  /// Error(timeout) if a step takes longer.
  void check_timeout(std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    std::uint64_t step;
    std::uint32_t bucket;
    Point point;
  };
  struct Enqueued {  // a step
    std::uint64_t step;
    Point point;
    Clock::time_point when;
  };

  exchange::StreamDevice& device_;
  int rank_;
  std::uint64_t step_ = 0;
  std::deque<Mark> buckets_;    // of this step and the one before
  std::deque<Enqueued> steps_;  // that the device has not ended, as far as is known
};

}  // namespace gradwire::session
