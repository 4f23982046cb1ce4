// Reads the resource usage of this process and its network device so far.
#pragma once

#include <cstdint>
#include <string>

namespace gradwire::bench {

/// Returns the CPU seconds of all threads, user and system.
[[nodiscard]] double cpu_seconds();

/// Returns the bytes sent by a network device (headers of every layer included), or NaN if no device has that name.
[[nodiscard]] double interface_bytes_sent(const std::string& interface);

/// Measures the peak memory of a stretch of code: resident memory at its peak minus that at the start.
class PeakMemory {
 public:
  PeakMemory();
  /// Returns the bytes so far; NaN if the kernel does not report them.
  [[nodiscard]] double bytes() const;

 private:
  double start_;
};

}  // namespace gradwire::bench
