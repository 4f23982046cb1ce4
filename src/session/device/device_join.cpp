#include "session/device/device_join.hpp"

#include <algorithm>
#include <utility>

namespace gradwire::session {

std::vector<DeviceFlight> DeviceJoin::add(exchange::StreamExecutor& executor, DeviceCalls::Prepared prepared) {
  waiting_.push_back(std::move(prepared.flight));
  return take(calls_.add(executor, std::move(prepared.call)));
}

std::vector<DeviceFlight> DeviceJoin::start(exchange::StreamExecutor& executor) { return take(calls_.start(executor)); }

std::vector<DeviceFlight> DeviceJoin::take(exchange::JoinedCalls::Executions started) {
  std::vector<DeviceFlight> flights;
  for (auto& execution : started) {
    flights.push_back(std::move(waiting_.front()));
    flights.back().execution = std::move(execution);
    waiting_.pop_front();
  }
  return flights;
}

bool DeviceJoin::waits(std::uint64_t step, std::uint32_t bucket) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const DeviceFlight& flight) { return flight.step == step && flight.bucket == bucket; });
}

}  // namespace gradwire::session
