#include "watch/page/charts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "watch/page/canvas.hpp"

namespace gradwire::watch::page {
namespace {

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    most = std::isfinite(value) ? std::max(most, value) : most;
  }
  return most;
}

struct Ends {
  double first = std::numeric_limits<double>::quiet_NaN();
  double last = std::numeric_limits<double>::quiet_NaN();
};

Ends ends_of(const std::vector<double>& values) {
  Ends ends;
  for (const double value : values) {
    if (std::isfinite(value)) {
      ends.first = std::isfinite(ends.first) ? ends.first : value;
      ends.last = value;
    }
  }
  return ends;
}

std::string told(Unit unit, const std::vector<double>& values) {
  const Ends ends = ends_of(values);
  return shown(unit, ends.first) + " at the start, " + shown(unit, ends.last) + " at the end, at most " +
         shown(unit, largest(values));
}

// The times at which curves are drawn: in the middle of each span, and at both ends.
std::vector<double> middles(const TimeAxis& axis) {
  std::vector<double> xs;
  const double end = axis.times.empty() ? 1 : axis.times.back();
  double before = 0;
  for (const double time : axis.times) {
    xs.push_back(kLeft + (kRight - kLeft) * (axis.times.size() == 1 ? time : (before + time) / 2) / end);
    before = time;
  }
  if (xs.size() > 1) {
    xs.front() = kLeft;
    xs.back() = kRight;
  }
  return xs;
}

// Pieces without a gap, as pairs of first and one past the last.
std::vector<std::pair<std::size_t, std::size_t>> pieces_of(const std::vector<double>& values) {
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      continue;
    }
    if (!pieces.empty() && pieces.back().second == i) {
      pieces.back().second = i + 1;
    } else {
      pieces.emplace_back(i, i + 1);
    }
  }
  return pieces;
}

std::string area(const std::vector<double>& xs, const std::vector<double>& low, const std::vector<double>& high,
                 double top, std::string_view style) {
  std::string path;
  for (const auto& [begin, end] : pieces_of(high)) {
    for (std::size_t i = begin; i < end; ++i) {
      path += (i == begin ? "M" : "L") + place(xs[i]) + " " + place(y_of(high[i], top));
    }
    for (std::size_t i = end; i-- > begin;) {
      path += "L" + place(xs[i]) + " " + place(y_of(low[i], top));
    }
    path += "Z";
  }
  return path.empty() ? "" : "<path class=\"" + std::string(style) + "\" d=\"" + path + "\"/>";
}

std::string curve(const std::vector<double>& xs, const std::vector<double>& values, double top) {
  std::string path;
  std::string points;
  for (const auto& [begin, end] : pieces_of(values)) {
    if (end - begin == 1) {
      points += "<circle class=\"dot\" cx=\"" + place(xs[begin]) + "\" cy=\"" + place(y_of(values[begin], top)) +
                "\" r=\"2.5\"/>";
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) {
      path += (i == begin ? "M" : "L") + place(xs[i]) + " " + place(y_of(values[i], top));
    }
  }
  return points + (path.empty() ? "" : "<path class=\"curve\" d=\"" + path + "\"/>");
}

}  // namespace

std::vector<double> values_of(const Json& values) {
  std::vector<double> all;
  for (const Json& value : values) {
    all.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return all;
}

std::string Charts::figure(std::string_view title, std::string_view note, const std::string& description,
                           const std::string& drawing, int height) {
  const std::string id = "f" + std::to_string(++figures_);
  std::string html = "<figure><figcaption><b>" + escaped(title) + "</b>";
  if (!note.empty()) {
    html += " <span>" + escaped(note) + "</span>";
  }
  return html + "</figcaption><svg viewBox=\"0 0 " + place(kWidth) + " " + std::to_string(height) +
         "\" role=\"img\" aria-labelledby=\"" + id + "t " + id + "d\"><title id=\"" + id + "t\">" + escaped(title) +
         "</title><desc id=\"" + id + "d\">" + escaped(description) + "</desc>" + drawing + "</svg></figure>\n";
}

std::string Charts::frame(Unit unit, double top) const {
  std::string html = "<g class=\"axis\">";
  for (const double share : {0.0, 0.5, 1.0}) {
    const double y = y_of(share * top, top);
    html += line_at(y) + text_at(kLeft - 6, y + 4, "end", axis_text(unit, share * top));
  }
  if (!axis_.times.empty()) {
    const double end = axis_.times.back();
    const double steps = axis_.steps.empty() ? 0 : axis_.steps.back();
    html += text_at(kLeft, kBottom + 15, "start", "0") +
            text_at((kLeft + kRight) / 2, kBottom + 15, "middle", "time since the start") +
            text_at(kRight, kBottom + 15, "end", shown(Unit::seconds, end));
    if (steps > 0) {
      html += text_at(kRight, kBottom + 29, "end", "step " + shown(Unit::count, steps));
    }
  }
  return html + "</g>";
}

std::string Charts::stacked(std::string_view title, Unit unit, const std::vector<Layer>& layers) {
  const std::vector<double> xs = middles(axis_);
  std::vector<double> below(xs.size(), 0);
  std::vector<std::vector<double>> tops;
  for (const Layer& layer : layers) {
    std::vector<double> above = below;
    for (std::size_t i = 0; i < above.size(); ++i) {
      above[i] += layer.values[i];
    }
    tops.push_back(above);
    below = above;
  }
  const double top = top_of(unit, largest(below));
  std::string drawing = frame(unit, top);
  std::string description;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    drawing += area(xs, i == 0 ? std::vector<double>(xs.size(), 0) : tops[i - 1], tops[i], top, layers[i].style);
    description += (i == 0 ? "" : "; ") + layers[i].label + " " + told(unit, layers[i].values);
  }
  if (xs.size() == 1) {
    drawing += text_at((kLeft + kRight) / 2, kBottom - 50, "middle", "one span of time only");
  }
  return figure(title, "", description, drawing, kHeight);
}

std::string Charts::band(std::string_view title, std::string_view note, Unit unit, const Json& band) {
  const std::vector<double> low = values_of(band.at("low"));
  const std::vector<double> median = values_of(band.at("median"));
  const std::vector<double> high = values_of(band.at("high"));
  const std::vector<double> xs = middles(axis_);
  const double top = top_of(unit, largest(high));
  const std::string drawing = frame(unit, top) + area(xs, low, high, top, "band") + curve(xs, median, top);
  return figure(title, note, "Median of the ranks: " + told(unit, median), drawing, kHeight);
}

std::string Charts::bars(std::string_view title, std::string_view note, Unit unit, const Json& values) {
  const std::vector<double> heights = values_of(values);
  const double top = top_of(unit, largest(heights));
  std::string drawing = frame(unit, top);
  double before = 0;
  const double end = axis_.times.empty() ? 1 : axis_.times.back();
  for (std::size_t i = 0; i < heights.size(); ++i) {
    const double x = kLeft + (kRight - kLeft) * before / end;
    const double next = kLeft + (kRight - kLeft) * axis_.times[i] / end;
    before = axis_.times[i];
    if (heights[i] > 0) {
      const double y = y_of(heights[i], top);
      drawing += "<rect class=\"bad\" x=\"" + place(x) + "\" y=\"" + place(y) + "\" width=\"" +
                 place(std::max(next - x - 0.5, 1.0)) + "\" height=\"" + place(kBottom - y) + "\"/>";
    }
  }
  return figure(title, note, told(unit, heights), drawing, kHeight);
}

std::string Charts::lines(std::string_view title, std::string_view note, const Plane& plane,
                          const std::vector<Line>& lines) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double right = 0;
  double low = kInfinite;
  double high = -kInfinite;
  std::string description;
  for (const Line& line : lines) {
    right = std::max(right, largest(line.xs));
    for (const double y : line.ys) {
      low = std::isfinite(y) ? std::min(low, y) : low;
      high = std::isfinite(y) ? std::max(high, y) : high;
    }
    const Ends ends = ends_of(line.ys);
    description += (description.empty() ? "" : "; ") + line.label + " " + shown(plane.y, ends.first) +
                   " at the start, " + shown(plane.y, ends.last) + " at the end";
  }
  if (low > high || right <= 0) {
    return "";
  }
  double range = high > low ? high - low : std::max(std::abs(high), 1.0);
  low = high > low ? low : high - range / 2;
  if (plane.y != Unit::plain) {
    low = 0;
    range = top_of(plane.y, high);
  }
  std::string drawing = "<g class=\"axis\">";
  for (const double share : {0.0, 0.5, 1.0}) {
    const double y = y_of(share, 1);
    drawing += line_at(y) + text_at(kLeft - 6, y + 4, "end", axis_text(plane.y, low + share * range));
  }
  drawing += text_at(kLeft, kBottom + 15, "start", "0") +
             text_at((kLeft + kRight) / 2, kBottom + 15, "middle", plane.x_name) +
             text_at(kRight, kBottom + 15, "end", shown(plane.x, right)) + "</g>";
  for (const Line& line : lines) {
    std::string path;
    bool pen = false;
    for (std::size_t i = 0; i < std::min(line.xs.size(), line.ys.size()); ++i) {
      if (std::isfinite(line.ys[i])) {
        path += (pen ? "L" : "M") + place(kLeft + (kRight - kLeft) * line.xs[i] / right) + " " +
                place(y_of((line.ys[i] - low) / range, 1));
      }
      pen = std::isfinite(line.ys[i]);
    }
    drawing += "<path class=\"curve " + line.style + "\" d=\"" + path + "\"/>";
  }
  return figure(title, note, description, drawing, kHeight);
}

std::string Charts::columns(std::string_view title, std::string_view note, Unit unit, std::string_view axis,
                            const std::vector<std::pair<std::string, double>>& columns) {
  double most = 0;
  std::string description;
  for (const auto& [label, value] : columns) {
    most = std::max(most, value);
    description += (description.empty() ? "" : "; ") + label + ": " + shown(unit, value);
  }
  const double top = top_of(unit, most);
  std::string drawing = "<g class=\"axis\">";
  for (const double share : {0.0, 0.5, 1.0}) {
    const double y = y_of(share * top, top);
    drawing += line_at(y) + text_at(kLeft - 6, y + 4, "end", axis_text(unit, share * top));
  }
  const double width = (kRight - kLeft) / static_cast<double>(std::max<std::size_t>(columns.size(), 1));
  const std::size_t each = columns.size() > 7 ? 2 : 1;  // labels need some 60 units of width
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const double x = kLeft + width * static_cast<double>(i);
    const double y = y_of(std::max(columns[i].second, 0.0), top);
    drawing += "<rect class=\"dot\" x=\"" + place(x + width * 0.15) + "\" y=\"" + place(y) + "\" width=\"" +
               place(width * 0.7) + "\" height=\"" + place(kBottom - y) + "\"/>";
    drawing += i % each == 0 ? text_at(x + width / 2, kBottom + 15, "middle", columns[i].first) : "";
  }
  drawing += text_at((kLeft + kRight) / 2, kBottom + 29, "middle", std::string(axis)) + "</g>";
  return figure(title, note, description, drawing, kHeight);
}

std::string Charts::dots(std::string_view title, std::string_view note, Unit unit,
                         const std::vector<std::pair<int, Dot>>& ranks) {
  double most = 0;
  int last = 0;
  std::string marked;
  for (const auto& [rank, dot] : ranks) {
    most = std::max(most, dot.value);
    last = std::max(last, rank);
    marked += dot.marked ? (marked.empty() ? " Marked: rank " : ", ") + std::to_string(rank) : "";
  }
  const double top = top_of(unit, most);
  std::string drawing = "<g class=\"axis\">";
  for (const double share : {0.0, 0.5, 1.0}) {
    const double y = y_of(share * top, top);
    drawing += line_at(y) + text_at(kLeft - 6, y + 4, "end", axis_text(unit, share * top));
  }
  drawing += text_at(kLeft, kBottom + 15, "start", "rank 0");
  drawing += last > 0 ? text_at(kRight, kBottom + 15, "end", "rank " + std::to_string(last)) : "";
  drawing += "</g>";
  const double radius = ranks.size() > 256 ? 1.5 : ranks.size() > 32 ? 2.5 : 4;
  for (const bool on_top : {false, true}) {
    for (const auto& [rank, dot] : ranks) {
      if (dot.marked == on_top) {
        const double x = kLeft + 6 + (kRight - kLeft - 12) * (last > 0 ? static_cast<double>(rank) / last : 0.5);
        drawing += "<circle class=\"" + std::string(dot.marked ? "bad" : "dot") + "\" cx=\"" + place(x) + "\" cy=\"" +
                   place(y_of(dot.value, top)) + "\" r=\"" + place(dot.marked ? radius + 1 : radius) + "\"/>";
      }
    }
  }
  return figure(title, note, "A dot a rank, at most " + shown(unit, most) + "." + marked, drawing, kHeight);
}

// This is no drawing, since its letters would grow with the page.
std::string Charts::lanes(std::string_view title, const std::vector<Lane>& lanes) const {
  constexpr int kShades = 6;
  const double end = axis_.times.empty() ? 1 : axis_.times.back();
  std::map<std::string, int> shades;
  std::string html = "<figure><figcaption><b>" + escaped(title) + "</b></figcaption>";
  for (const Lane& lane : lanes) {
    html += "<div class=lane><span>" + escaped(lane.label) + "</span><div class=bar>";
    for (const Lane::Part& part : lane.parts) {
      const int shade = shades.try_emplace(part.text, static_cast<int>(shades.size()) % kShades).first->second;
      html += "<i class=k" + std::to_string(shade) + " style=\"width:" + place(100 * (part.to - part.from) / end) +
              "%\" title=\"" + escaped(part.text) + ", from " + shown(Unit::seconds, part.from) + " to " +
              shown(Unit::seconds, part.to) + "\">" + escaped(part.text) + "</i>";
    }
    html += "</div></div>";
  }
  return html + "<div class=ends><span>0</span><span>time since the start</span><span>" + shown(Unit::seconds, end) +
         "</span></div></figure>\n";
}

}  // namespace gradwire::watch::page
