// Marks in the work that was enqueued on a device, by which its progress is seen: the buckets of the last two steps,
// and the steps that have not ended.
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

  /// Sets the step that is enqueued now.
  void begin_step(std::uint64_t step) noexcept {
    step_ = step;
    ended_ = false;
  }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  /// Marks the end of the bucket; all of it is enqueued. A bucket without a mark ends with its step.
  void add(std::uint32_t bucket) { buckets_.push_back({step_, bucket, device_.mark()}); }
  /// Marks the end of the step and returns it; all of it is enqueued.
  Point end_step();
  /// Whether the device is known to have done the step.
  [[nodiscard]] bool ended(std::uint64_t step) const noexcept { return step < step_ || (step == step_ && ended_); }
  /// Returns the point at which the device has done the bucket, or its step; nothing if neither has a mark any more.
  [[nodiscard]] std::optional<Point> find(std::uint64_t step, std::uint32_t bucket) const;
  /// Throws Error(timeout) if a step has taken longer than `timeout` since it was enqueued.
  void check_timeout(std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    std::uint64_t step;
    std::uint32_t bucket;
    Point point;
  };
  struct Enqueued {  // a step with its mark
    std::uint64_t step;
    Point point;
    Clock::time_point when;
  };

  exchange::StreamDevice& device_;
  int rank_;
  std::uint64_t step_ = 0;
  bool ended_ = false;          // the device is known to have done this step
  std::deque<Mark> buckets_;    // of this step and the previous one
  std::deque<Enqueued> steps_;  // steps that the device is not known to have ended
};

}  // namespace gradwire::session
