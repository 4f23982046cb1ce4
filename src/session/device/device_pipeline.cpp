#include "session/device/device_pipeline.hpp"

#include <algorithm>

namespace gradwire::session {

void DevicePipeline::add(DeviceCalls::Prepared prepared) { take(join_.add(executor_, std::move(prepared))); }

void DevicePipeline::start_waiting() { take(join_.start(executor_)); }

void DevicePipeline::take(std::vector<DeviceFlight> flights) {
  for (DeviceFlight& flight : flights) {
    flights_.push_back(std::move(flight));
  }
  close_enqueued(true);
}

bool DevicePipeline::has(std::uint32_t bucket) const {
  return std::any_of(flights_.begin(), flights_.end(),
                     [=](const DeviceFlight& flight) { return flight.bucket == bucket; });
}

void DevicePipeline::flush(bool ends_step) {
  executor_.finish();
  close_enqueued(!ends_step);
}

// Enqueues the work that follows a bucket's collective, for all buckets whose collective is completely enqueued.
void DevicePipeline::close_enqueued(bool marks) {
  while (!flights_.empty() && flights_.front().execution->enqueued()) {
    DeviceFlight& flight = flights_.front();
    DeviceCalls::close(device_.backend(), flight);
    residuals_.end(device_.backend(), flight.bucket, flight.residuals);
    if (marks && !device_.capturing()) {
      marks_.add(flight.bucket);
    }
    statistics_.add(flight.group, flight.execution->statistics());
    flights_.pop_front();
  }
}

}  // namespace gradwire::session
