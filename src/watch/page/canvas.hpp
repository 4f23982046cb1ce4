// What charts are drawn with: places, texts and lines in an SVG of fixed size, and round ends of axes.
#pragma once

#include <string>
#include <string_view>

#include "watch/page/units.hpp"

namespace gradwire::watch::page {

// Sizes of the drawing, in its own units.
inline constexpr double kWidth = 480;
inline constexpr double kLeft = 70;
inline constexpr double kRight = 470;
inline constexpr double kTop = 8;
inline constexpr double kBottom = 138;
inline constexpr int kHeight = 172;

/// A place or a length, with one digit behind the point at most.
[[nodiscard]] std::string place(double value);
/// The top of an axis whose largest value is `most`: a number that is round in the unit shown. Shares reach to 100%.
[[nodiscard]] double top_of(Unit unit, double most);
/// "2.5 MB" where 2.50 MB is shown elsewhere.
[[nodiscard]] std::string axis_text(Unit unit, double value);
/// The height of a value on an axis that begins at 0.
[[nodiscard]] double y_of(double value, double top);
/// `anchor`: "start", "middle" or "end".
[[nodiscard]] std::string text_at(double x, double y, std::string_view anchor, const std::string& text);
/// A line across the drawing.
[[nodiscard]] std::string line_at(double y);

}  // namespace gradwire::watch::page
