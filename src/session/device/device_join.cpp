#include "session/device/device_join.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gradwire::session {

std::vector<DeviceFlight> DeviceJoin::add(exchange::StreamExecutor& executor, DeviceCalls::Prepared prepared) {
  const exchange::StreamTask& task = prepared.call.task;
  const std::uint64_t bytes = task.count * element_bytes(task.dtype);
  const bool joins = bytes < bytes_ && executor.joins(prepared.call.schedule, task);
  const bool alike =
      waiting_.empty() || waiting_[0].call.task.call.codecs.first.spec() == task.call.codecs.first.spec();
  std::vector<DeviceFlight> started;
  if (!joins || !alike) {
    started = start(executor);
  }
  waiting_.push_back(std::move(prepared));
  waiting_bytes_ += bytes;
  if (!joins || waiting_bytes_ >= bytes_) {
    std::vector<DeviceFlight> more = start(executor);
    std::move(more.begin(), more.end(), std::back_inserter(started));
  }
  return started;
}

std::vector<DeviceFlight> DeviceJoin::start(exchange::StreamExecutor& executor) {
  std::vector<DeviceFlight> flights;
  if (waiting_.empty()) {
    return flights;
  }
  std::vector<exchange::StreamExecutor::Call> calls;
  for (DeviceCalls::Prepared& prepared : waiting_) {
    flights.push_back(std::move(prepared.flight));
    calls.push_back(std::move(prepared.call));
  }
  waiting_.clear();
  waiting_bytes_ = 0;
  const auto executions = executor.start(std::move(calls));
  for (std::size_t i = 0; i < flights.size(); ++i) {
    flights[i].execution = executions[i];
  }
  return flights;
}

bool DeviceJoin::waits(std::uint64_t step, std::uint32_t bucket) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const DeviceCalls::Prepared& prepared) {
    return prepared.flight.step == step && prepared.flight.bucket == bucket;
  });
}

}  // namespace gradwire::session
