#include "watch/page/units.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace gradwire::watch::page {
namespace {

// Three significant digits.
std::string three_digits(double value) {
  std::array<char, 64> text{};
  const double size = std::abs(value);
  const int decimals = size >= 99.95 || size == 0 ? 0 : size >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string scaled(double value, std::string_view suffix) {
  constexpr std::array<std::string_view, 6> kPrefixes{"", "k", "M", "G", "T", "P"};
  std::size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  return (prefix == 0 && value == std::floor(value) ? std::to_string(static_cast<long long>(value))
                                                    : three_digits(value)) +
         " " + std::string(kPrefixes[prefix]) + std::string(suffix);
}

std::string seconds_text(double value) {
  if (value == 0) {
    return "0 s";
  }
  if (value < 0.9995e-3) {
    return three_digits(value * 1e6) + " us";
  }
  if (value < 0.9995) {
    return three_digits(value * 1e3) + " ms";
  }
  if (value < 119.5) {
    return three_digits(value) + " s";
  }
  const auto whole = static_cast<long long>(std::llround(value));
  return whole < 7200 ? std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s"
                      : std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

std::string count_text(double value) {
  std::string digits = std::to_string(static_cast<long long>(std::llround(value)));
  for (auto place = static_cast<std::ptrdiff_t>(digits.size()) - 3; place > 0; place -= 3) {
    digits.insert(static_cast<std::size_t>(place), 1, ',');
  }
  return digits;
}

std::string share_text(double value) {
  const double percent = 100 * value;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f%%",
                percent == 0 || percent >= 9.95 ? 0
                : percent < 0.995               ? 2
                                                : 1,
                percent);
  return text.data();
}

std::string plain_text(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

}  // namespace

std::string shown(Unit unit, double value) {
  if (!std::isfinite(value) || (value < 0 && unit != Unit::plain)) {
    return "-";
  }
  switch (unit) {
    case Unit::count: return count_text(value);
    case Unit::seconds: return seconds_text(value);
    case Unit::bytes: return scaled(value, "B");
    case Unit::rate: return scaled(value, "B/s");
    case Unit::bits: return scaled(8 * value, "bit/s");
    case Unit::share: return share_text(value);
    case Unit::factor: return three_digits(value);
    case Unit::plain: break;
  }
  return plain_text(value);
}

std::string binary_size(double bytes) {
  constexpr std::array<std::string_view, 4> kUnitsOf1024{"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnitsOf1024.size(); ++unit) {
    bytes /= 1024;
  }
  return plain_text(bytes) + " " + std::string(kUnitsOf1024[unit]);
}

std::string_view mark_of(Unit unit) {
  constexpr std::array<std::string_view, 8> kMarks{"n", "s", "B", "r", "b", "p", "x", "g"};
  return kMarks[static_cast<std::size_t>(unit)];
}

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

}  // namespace gradwire::watch::page
