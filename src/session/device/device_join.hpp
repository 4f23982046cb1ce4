// Lets small buckets that follow each other be made together: one set of launches, and one message to each rank. Which
// buckets these are depends on their order, their sizes, their codecs and the policy alone, and not on time, so that it
// is the same on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "exchange/stream/stream_executor.hpp"
#include "session/device/device_calls.hpp"

namespace gradwire::session {

class DeviceJoin {
 public:
  /// `bytes` is Policy::Device::join_bytes.
  explicit DeviceJoin(std::uint64_t bytes = 0) : bytes_(bytes) {}

  /// Takes the next bucket. Returns the buckets that it has started: none if this one waits for the next.
  [[nodiscard]] std::vector<DeviceFlight> add(exchange::StreamExecutor& executor, DeviceCalls::Prepared prepared);
  /// Starts the buckets that wait.
  [[nodiscard]] std::vector<DeviceFlight> start(exchange::StreamExecutor& executor);
  /// Returns whether the bucket of this step waits.
  [[nodiscard]] bool waits(std::uint64_t step, std::uint32_t bucket) const;

 private:
  std::uint64_t bytes_;
  std::vector<DeviceCalls::Prepared> waiting_ = {};
  std::uint64_t waiting_bytes_ = 0;
};

}  // namespace gradwire::session
