#include "base/units.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

[[noreturn]] void fail(std::string_view what, std::string_view text, std::string_view examples) {
  throw Error(ErrorCode::invalid_argument,
              "bad " + std::string(what) + " \"" + std::string(text) + "\": write " + std::string(examples));
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// A non-negative finite number and the rest of the text.
std::optional<std::pair<double, std::string_view>> split_number(std::string_view text) {
  text = trim(text);
  if (text.starts_with('-')) {  // from_chars would read -0
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(value)) {
    return std::nullopt;
  }
  return std::pair(value, trim(text.substr(static_cast<std::size_t>(end - text.data()))));
}

template <std::size_t N>
std::optional<double> with_unit(std::string_view text, const std::array<Unit, N>& units) {
  const auto parts = split_number(text);
  if (!parts) {
    return std::nullopt;
  }
  for (const Unit& unit : units) {
    if (parts->second == unit.name) {
      return parts->first * unit.factor;
    }
  }
  return std::nullopt;
}

// Four digits without an exponent, which the parsers do not read.
std::string format_scaled(double value) {
  if (value < 1000) {
    return format_number(value, 4);
  }
  std::array<char, 320> buffer{};  // the largest double has 309 digits
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, 0);
  return {buffer.data(), result.ptr};
}

constexpr std::array kBytes{
    Unit{"", 1},     Unit{"B", 1},    Unit{"KiB", 1024.0}, Unit{"MiB", 1048576.0}, Unit{"GiB", 1073741824.0},
    Unit{"kB", 1e3}, Unit{"MB", 1e6}, Unit{"GB", 1e9}};
constexpr std::array kRates{
    Unit{"bit/s", 0.125},  Unit{"kbit/s", 125.0},    Unit{"Mbit/s", 125e3},      Unit{"Gbit/s", 125e6},
    Unit{"B/s", 1},        Unit{"kB/s", 1e3},        Unit{"MB/s", 1e6},          Unit{"GB/s", 1e9},
    Unit{"KiB/s", 1024.0}, Unit{"MiB/s", 1048576.0}, Unit{"GiB/s", 1073741824.0}};
constexpr std::array kDurations{Unit{"ns", 1}, Unit{"us", 1e3}, Unit{"ms", 1e6}, Unit{"s", 1e9}, Unit{"min", 60e9}};

}  // namespace

std::uint64_t parse_bytes(std::string_view text) {
  const auto value = with_unit(text, kBytes);
  if (!value || *value >= 0x1p63) {
    fail("size", text, "a number and B, KiB, MiB, GiB, kB, MB or GB, such as 64KiB");
  }
  return static_cast<std::uint64_t>(std::llround(*value));
}

double parse_fraction(std::string_view text) {
  constexpr std::string_view kExamples = "a share above 0 and up to 1, such as 1%, 0.01 or 64/4096";
  const auto parts = split_number(text);
  double value = -1;
  if (parts && parts->second.empty()) {
    value = parts->first;
  } else if (parts && parts->second == "%") {
    value = parts->first / 100;
  } else if (parts && parts->second.starts_with('/')) {
    const auto below = split_number(parts->second.substr(1));
    if (below && below->second.empty() && below->first > 0) {
      value = parts->first / below->first;
    }
  }
  if (!(value > 0 && value <= 1)) {
    fail("share", text, kExamples);
  }
  return value;
}

double parse_rate(std::string_view text) {
  const auto value = with_unit(text, kRates);
  if (!value || *value <= 0 || !std::isfinite(*value)) {
    fail("rate", text, "a number above 0 and kbit/s, Mbit/s, Gbit/s, kB/s, MB/s or GB/s, such as 1Gbit/s");
  }
  return *value;
}

std::chrono::nanoseconds parse_duration(std::string_view text) {
  const auto value = with_unit(text, kDurations);
  if (!value || *value >= 0x1p62) {
    fail("duration", text, "a number and ns, us, ms, s or min, such as 50us");
  }
  return std::chrono::nanoseconds(std::llround(*value));
}

std::string format_number(double value, int precision) {
  constexpr int kMostDigits = 17;  // so many digits tell any two doubles apart
  std::array<char, 64> buffer{};
  precision = std::min(precision, kMostDigits);
  const auto result = precision > 0 ? std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                                    std::chars_format::general, precision)
                                    : std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::pair<std::uint64_t, std::string_view>, 3> kUnits{
      {{1ULL << 30, "GiB"}, {1ULL << 20, "MiB"}, {1ULL << 10, "KiB"}}};
  for (const auto& [factor, name] : kUnits) {
    if (bytes >= factor) {
      return format_scaled(static_cast<double>(bytes) / static_cast<double>(factor)) + std::string(name);
    }
  }
  return std::to_string(bytes) + "B";
}

std::string format_rate(double bytes_per_second) {
  const double bits = bytes_per_second * 8;
  constexpr std::array<Unit, 3> kUnits{{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}}};
  for (const Unit& unit : kUnits) {
    if (bits >= unit.factor) {
      return format_scaled(bits / unit.factor) + std::string(unit.name);
    }
  }
  return format_scaled(bits) + "bit/s";
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const auto count = static_cast<double>(duration.count());
  constexpr std::array<Unit, 3> kUnits{{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}}};
  for (const Unit& unit : kUnits) {
    if (count >= unit.factor) {
      return format_scaled(count / unit.factor) + std::string(unit.name);
    }
  }
  return format_scaled(count) + "ns";
}

}  // namespace gradwire
