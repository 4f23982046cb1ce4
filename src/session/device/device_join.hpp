// Lets small buckets that follow each other be made together (exchange/stream/joined_calls.hpp).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "exchange/stream/joined_calls.hpp"
#include "session/device/device_calls.hpp"

namespace gradwire::session {

class DeviceJoin {
 public:
  /// `bytes` is Policy::Device::join_bytes.
  explicit DeviceJoin(std::uint64_t bytes = 0) : calls_({.below = bytes, .enough = bytes}) {}

  /// Takes the next bucket. Returns the buckets that it has started: none if this one waits for the next.
  [[nodiscard]] std::vector<DeviceFlight> add(exchange::StreamExecutor& executor, DeviceCalls::Prepared prepared);
  /// Starts the buckets that wait.
  [[nodiscard]] std::vector<DeviceFlight> start(exchange::StreamExecutor& executor);
  /// Returns whether the bucket of this step waits.
  [[nodiscard]] bool waits(std::uint64_t step, std::uint32_t bucket) const;

 private:
  [[nodiscard]] std::vector<DeviceFlight> take(exchange::JoinedCalls::Executions started);

  exchange::JoinedCalls calls_;
  std::deque<DeviceFlight> waiting_ = {};
};

}  // namespace gradwire::session
