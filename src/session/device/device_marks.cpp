#include "session/device/device_marks.hpp"

#include <string>

#include "base/units.hpp"

namespace gradwire::session {

DeviceMarks::Point DeviceMarks::end_step() {
  steps_.push_back({step_, device_.mark(), Clock::now()});
  while (!buckets_.empty() && buckets_.front().step + 1 < step_) {
    buckets_.pop_front();
  }
  return steps_.back().point;
}

std::optional<DeviceMarks::Point> DeviceMarks::find(std::uint64_t step, std::uint32_t bucket) const {
  for (const Mark& mark : buckets_) {
    if (mark.step == step && mark.bucket == bucket) {
      return mark.point;
    }
  }
  for (const Enqueued& ended : steps_) {
    if (ended.step == step) {
      return ended.point;
    }
  }
  return std::nullopt;
}

void DeviceMarks::check_timeout(std::chrono::milliseconds timeout) {
  while (!steps_.empty() && device_.reached(steps_.front().point)) {
    ended_ = ended_ || steps_.front().step == step_;
    steps_.pop_front();
  }
  if (!steps_.empty() && Clock::now() - steps_.front().when > timeout) {
    throw Error(ErrorCode::timeout,
                "rank " + std::to_string(rank_) + ": the device has not ended step " +
                    std::to_string(steps_.front().step) + " for " + format_duration(timeout) +
                    ": are all ranks alive, and do they make the same calls?",
                ErrorCause::world);
  }
}

}  // namespace gradwire::session
