// Formats values as docs/reference/defaults.md shows them, and reads those of a policy.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "tests/defaults/defaults.hpp"

namespace gradwire::test {

inline const std::string kByTransport = "by the transport";

[[nodiscard]] inline std::string text(Algorithm algorithm) { return std::string(to_string(algorithm)); }
[[nodiscard]] inline std::string text(const CodecSpec& codec) { return codec.to_string(); }
[[nodiscard]] inline std::string text(Reduction reduction) { return reduction == Reduction::sum ? "sum" : "mean"; }
[[nodiscard]] inline std::string text(bool on) { return on ? "on" : "off"; }
[[nodiscard]] inline std::string text(const std::optional<bool>& checksum) {
  return checksum ? text(*checksum) : kByTransport;
}
[[nodiscard]] inline std::string text(Nonfinite nonfinite) {
  return nonfinite == Nonfinite::automatic ? "auto" : nonfinite == Nonfinite::skip ? "skip" : "propagate";
}
[[nodiscard]] inline std::string text(Threading threading) {
  return threading == Threading::background   ? "background"
         : threading == Threading::serialized ? "serialized"
                                              : "main_thread";
}
[[nodiscard]] inline std::string text(std::chrono::milliseconds time) {
  const auto minutes = std::chrono::floor<std::chrono::minutes>(time);
  return minutes == time ? std::to_string(minutes.count()) + " min" : format_duration(time);
}
[[nodiscard]] inline std::string percent(double share) { return format_number(share * 100, 6) + "%"; }

template <typename T>
[[nodiscard]] std::string given(const std::optional<T>& value, const std::string& otherwise) {
  return value ? "given" : otherwise;
}
[[nodiscard]] inline std::string chunk_text(const std::optional<std::uint64_t>& bytes) {
  return format_bytes(bytes.value_or(kDefaultChunkBytes));
}
[[nodiscard]] inline std::string nodes_text(const std::optional<std::uint32_t>& ranks) {
  return ranks ? std::to_string(*ranks) : kByTransport;
}
[[nodiscard]] inline std::string steps_text(std::uint64_t steps) {
  return steps == 0 ? "never" : "every " + std::to_string(steps);
}

/// Returns a value that must be equal in Policy() and in an empty file.
[[nodiscard]] inline Default of_policy(std::string shown, const std::function<std::string(const Policy&)>& read) {
  return {std::move(shown), [read] {
            const std::string in_code = read(Policy());
            const std::string in_a_file = read(Policy::parse(""));
            return in_code == in_a_file ? in_code : "in code " + in_code + ", in a file " + in_a_file;
          }};
}
/// Returns a value of a section that must be equal in Section() and in an empty section of a file.
template <typename Section>
[[nodiscard]] Default of_section(std::string shown, const std::string& file, std::optional<Section> Policy::*member,
                                 const std::function<std::string(const Section&)>& read) {
  return {std::move(shown), [file, member, read] {
            const std::string in_code = read(Section());
            const std::string in_a_file = read((Policy::parse(file).*member).value());
            return in_code == in_a_file ? in_code : "in code " + in_code + ", in a file " + in_a_file;
          }};
}

}  // namespace gradwire::test
