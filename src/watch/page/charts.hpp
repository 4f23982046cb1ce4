// Small charts as inline SVG, whose colours are those of the page's style sheet.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "watch/page/units.hpp"

namespace gradwire::watch::page {

using Json = nlohmann::ordered_json;

/// The axis that all curves of a page share.
struct TimeAxis {
  std::vector<double> times;  // ends of spans; the axis begins at 0
  std::vector<double> steps;  // number of steps at these times
};

struct Layer {
  std::string label;
  std::string style;           // class in the style sheet
  std::vector<double> values;  // NaN: none
};

/// Makes figures, each with a name that is unique within a page.
class Charts {
 public:
  explicit Charts(TimeAxis axis) : axis_(std::move(axis)) {}

  /// Draws layers on top of each other.
  [[nodiscard]] std::string stacked(std::string_view title, Unit unit, const std::vector<Layer>& layers);
  /// Draws the median as a line, in the band of all values except the outer tenths; `band` has low, median and high.
  [[nodiscard]] std::string band(std::string_view title, std::string_view note, Unit unit, const Json& band);
  [[nodiscard]] std::string bars(std::string_view title, std::string_view note, Unit unit, const Json& values);
  struct Line {
    std::string label;
    std::string style;  // class in the style sheet
    std::vector<double> xs;
    std::vector<double> ys;  // NaN: none
  };
  struct Plane {
    std::string x_name;
    Unit x = Unit::count;
    Unit y = Unit::plain;
  };
  /// Draws lines over an axis of their own. The other axis begins at 0, or for Unit::plain, such as a loss, at the
  /// least value.
  [[nodiscard]] std::string lines(std::string_view title, std::string_view note, const Plane& plane,
                                  const std::vector<Line>& lines);
  /// Draws a column for each label; `axis` says what the labels are.
  [[nodiscard]] std::string columns(std::string_view title, std::string_view note, Unit unit, std::string_view axis,
                                    const std::vector<std::pair<std::string, double>>& columns);
  struct Dot {
    double value = 0;
    bool marked = false;
  };
  /// Draws one dot for each rank.
  [[nodiscard]] std::string dots(std::string_view title, std::string_view note, Unit unit,
                                 const std::vector<std::pair<int, Dot>>& ranks);
  struct Lane {
    std::string label;
    struct Part {
      double from;
      double to;
      std::string text;
    };
    std::vector<Part> parts;
  };
  /// Draws the codecs that were in use, one lane each.
  [[nodiscard]] std::string lanes(std::string_view title, const std::vector<Lane>& lanes) const;

 private:
  [[nodiscard]] std::string figure(std::string_view title, std::string_view note, const std::string& description,
                                   const std::string& drawing, int height);
  [[nodiscard]] std::string frame(Unit unit, double top) const;

  TimeAxis axis_;
  int figures_ = 0;
};

/// The values, with NaN for null.
[[nodiscard]] std::vector<double> values_of(const Json& values);

}  // namespace gradwire::watch::page
