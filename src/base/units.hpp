// Parses quantities as people write them: "64KiB", "1%", "64/4096", "1Gbit/s", "50us". Errors are
// Error(invalid_argument) that quotes the text and shows an example.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradwire {

/// "64KiB", "32MiB", "1GiB", "1000B", "250kB", "4096": bytes. KiB.. are powers of 1024, kB.. of 1000.
[[nodiscard]] std::uint64_t parse_bytes(std::string_view text);
/// "1%", "0.01", "64/4096": a fraction in (0, 1].
[[nodiscard]] double parse_fraction(std::string_view text);
/// "1Gbit/s", "100Mbit/s", "10kbit/s", "1MB/s", "1GiB/s": bytes per second.
[[nodiscard]] double parse_rate(std::string_view text);
/// "50us", "1ms", "2s", "100ns".
[[nodiscard]] std::chrono::nanoseconds parse_duration(std::string_view text);

/// Inverses for messages: "64KiB", "1.5MiB"; "1Gbit/s"; "50us".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);
[[nodiscard]] std::string format_rate(double bytes_per_second);
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds duration);
/// The shortest text that reads back as `value`, or a text with `precision` significant digits.
[[nodiscard]] std::string format_number(double value, int precision = 0);

}  // namespace gradwire
