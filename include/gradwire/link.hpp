// A link between nodes: its rate and latency.
#pragma once

#include <chrono>
#include <string>

namespace gradwire {

/// A link as a policy states it, or as it is to be emulated.
struct Link {
  double bytes_per_second = 0;          // 0: unlimited; emulated by token buckets for a rank's egress and ingress
  std::chrono::nanoseconds latency{0};  // added to each message

  /// "1Gbit/s" or "1Gbit/s,50us" (also Mbit/s, MB/s, GB/s). Error(invalid_argument) names what is wrong.
  [[nodiscard]] static Link parse(const std::string& text);
  [[nodiscard]] std::string to_string() const;
};

}  // namespace gradwire
