// A link between nodes: its rate and latency.
#pragma once

#include <chrono>
#include <string>

namespace gradwire {

/// What a policy says of a link, or what is to be emulated.
struct Link {
  double bytes_per_second = 0;          // 0: unlimited; each rank has a token bucket for egress and one for ingress
  std::chrono::nanoseconds latency{0};  // added to each message

  /// "1Gbit/s" or "1Gbit/s,50us" (also Mbit/s, MB/s, GB/s). Error(invalid_argument) names what is wrong.
  [[nodiscard]] static Link parse(const std::string& text);
  [[nodiscard]] std::string to_string() const;
};

}  // namespace gradwire
