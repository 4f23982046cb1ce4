#include "watch/page/canvas.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace gradwire::watch::page {
namespace {

// The least number not below x that is 1, 2, 2.5 or 5 times a power of ten.
double rounded_up(double value) {
  if (!(value > 0)) {
    return 1;
  }
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    if (value <= step * power * 1.0001) {
      return step * power;
    }
  }
  return 10 * power;
}

}  // namespace

std::string place(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  std::string_view digits = text.data();
  return std::string(digits.ends_with(".0") ? digits.substr(0, digits.size() - 2) : digits);
}

double top_of(Unit unit, double most) {
  constexpr double kBits = 8;
  if (unit == Unit::share) {
    return std::max(1.0, most);
  }
  return unit == Unit::bits ? rounded_up(kBits * most) / kBits : rounded_up(most);
}

std::string axis_text(Unit unit, double value) {
  if (value == 0) {
    return "0";
  }
  std::string text = shown(unit, value);
  const std::size_t point = text.find('.');
  if (point == std::string::npos) {
    return text;
  }
  const std::size_t end = std::min(text.find_first_not_of("0123456789", point + 1), text.size());
  const std::size_t last = text.find_last_not_of('0', end - 1);
  return text.erase(last == point ? point : last + 1, end - (last == point ? point : last + 1));
}

double y_of(double value, double top) { return kBottom - (kBottom - kTop) * std::min(value / top, 1.0); }

std::string text_at(double x, double y, std::string_view anchor, const std::string& text) {
  return "<text x=\"" + place(x) + "\" y=\"" + place(y) + "\" text-anchor=\"" + std::string(anchor) + "\">" +
         escaped(text) + "</text>";
}

std::string line_at(double y) {
  return "<line class=\"grid\" x1=\"" + place(kLeft) + "\" x2=\"" + place(kRight) + "\" y1=\"" + place(y) + "\" y2=\"" +
         place(y) + "\"/>";
}

}  // namespace gradwire::watch::page
