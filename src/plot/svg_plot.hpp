// Line and dot plots as SVG text, with linear, logarithmic or named axes, a legend and a title: just enough for the
// reports.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::plot {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points = {};  // in x order; NaN is left out
  bool line = true;                                    // false: dots only
  bool markers = true;                                 // a dot for each point
  bool hollow = false;                                 // dots are outlines: of values that were not measured here
  bool bars = false;  // instead: a horizontal bar from each point of even index to the next one, at its y
};

struct Axis {
  std::string label = {};
  bool logarithmic = false;
  std::vector<std::string> names = {};  // not empty: value i stands at names[i]
  double low = NAN, high = NAN;         // NaN: taken from the data
  bool from_zero = true;                // a linear axis of positive data without `low` begins at 0
};

struct Plot {
  std::string title;
  Axis x, y;
  std::vector<Series> series = {};
  double reference = NAN;  // a thin horizontal line at this y, with its name
  std::string reference_name = {};
};

/// The area inside the axes of each plot, and whether plots stand below or beside each other.
struct Layout {
  bool stacked = false;
  double width = 440, height = 280;
};

/// Draws the plots in one picture, with room for the longest name. Series of equal names have equal colours and dashes,
/// others differ. `note` is printed small below them.
[[nodiscard]] std::string render_svg(const std::vector<Plot>& plots, const std::string& note = {},
                                     const Layout& layout = {});

}  // namespace gradwire::plot
