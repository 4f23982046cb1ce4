// Searches recorded messages for sixteen bytes in a row of other bytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "recorded_traffic.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {

/// Returns a hash of sixteen bytes in a row; none where they are mostly alike, as padding and headers are.
inline std::optional<std::uint64_t> window_at(std::span<const std::byte> bytes, std::size_t at) {
  std::array<std::uint64_t, 4> seen{};
  for (const std::byte byte : bytes.subspan(at, 16)) {
    const auto value = std::to_integer<unsigned>(byte);
    seen[value / 64] |= std::uint64_t{1} << (value % 64);
  }
  int distinct = 0;
  for (const std::uint64_t word : seen) {
    distinct += std::popcount(word);
  }
  if (distinct < 9) {
    return std::nullopt;
  }
  std::array<std::uint64_t, 2> halves{};
  std::memcpy(halves.data(), bytes.data() + at, sizeof halves);
  return halves[0] * 0x9E3779B97F4A7C15U ^ std::rotl(halves[1] * 0xC2B2AE3D27D4EB4FU, 32);
}

/// All sixteen bytes in a row that were sent.
class SentWindows {
 public:
  explicit SentWindows(const Traffic& traffic) {
    for (const RecordedMessage& message : traffic.messages()) {
      for (std::size_t at = 0; at + 16 <= message.bytes.size(); ++at) {
        if (const auto window = window_at(message.bytes, at)) {
          windows_.push_back(*window);
        }
      }
    }
    std::ranges::sort(windows_);
  }

  /// How many of the windows in `bytes` were sent.
  [[nodiscard]] std::size_t count_of(std::span<const std::byte> bytes) const {
    std::size_t found = 0;
    for (std::size_t at = 0; at + 16 <= bytes.size(); ++at) {
      const auto window = window_at(bytes, at);
      found += window && std::ranges::binary_search(windows_, *window) ? 1 : 0;
    }
    return found;
  }

  /// How many windows of messages in `traffic` were sent here, too. Headers of frames do not count.
  [[nodiscard]] std::size_t count_of(const Traffic& traffic) const {
    std::size_t found = 0;
    for (const RecordedMessage& message : traffic.messages()) {
      const std::span<const std::byte> bytes(message.bytes);
      found += count_of(is_frame(message) ? bytes.subspan(wire::kHeaderBytes) : bytes);
    }
    return found;
  }

 private:
  std::vector<std::uint64_t> windows_;  // sorted
};

}  // namespace gradwire::test
