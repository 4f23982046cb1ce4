// Line and dot plots as SVG text: linear, logarithmic or named axes, a legend, a title. Just what the reports need.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::plot {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points = {};  // in x order; NaN is left out
  bool line = true;                                    // dots only otherwise
  bool markers = true;                                 // a dot for each point
};

struct Axis {
  std::string label = {};
  bool logarithmic = false;
  std::vector<std::string> names = {};  // not empty: value i stands at names[i]
  double low = NAN, high = NAN;         // NaN: from the data
  bool from_zero = true;                // a linear axis of positive data without `low` begins at 0
};

struct Plot {
  std::string title;
  Axis x, y;
  std::vector<Series> series = {};
  double reference = NAN;  // a thin horizontal line at this y, with its name
  std::string reference_name = {};
};

/// The area inside the axes of each plot, and whether plots stand below each other or beside.
struct Layout {
  bool stacked = false;
  double width = 440, height = 280;
};

/// The plots in one picture; equal series names have equal colours and dashes, different ones differ. `note` goes
/// below, small.
[[nodiscard]] std::string render_svg(const std::vector<Plot>& plots, const std::string& note = {},
                                     const Layout& layout = {});

}  // namespace gradwire::plot
