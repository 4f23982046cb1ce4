// The value of GRADWIRE_RECORD_GRADIENTS, parsed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradwire {

/// "/tmp/gradients", "/tmp/gradients:steps=20".
struct RecordTarget {
  std::string directory;
  std::uint64_t steps = 5;

  /// `gradwire ratio` reads a tensor in all its recorded steps at once, each through an open file.
  static constexpr std::uint64_t kMostSteps = 512;
  /// Parses the text; Error(invalid_argument) quotes it and says what is allowed.
  [[nodiscard]] static RecordTarget parse(std::string_view text);
  /// The inverse.
  [[nodiscard]] std::string to_string() const { return directory + ":steps=" + std::to_string(steps); }
};

}  // namespace gradwire
