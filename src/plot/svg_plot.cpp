#include "plot/svg_plot.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>

namespace gradwire::plot {
namespace {

constexpr double kLeft = 64, kTop = 48, kRight = 150, kBottom = 56;
constexpr double kNamesBottom = 120;                 // room for slanted names
constexpr double kLegendRow = 19, kLegendName = 38;  // a row's height, and where its name begins, beside the axes
constexpr double kLetter = 6.4;                      // a letter's width, rather too large: nobody knows the font

// Okabe and Ito's colours, which colour-blind readers can tell apart, too, and two of Tol's. When they are used up,
// lines are dashed.
constexpr const char* kColours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                    "#56B4E9", "#444444", "#882255", "#999933"};
constexpr const char* kDashes[] = {"", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 2\""};
const char* colour_of(std::size_t series) { return kColours[series % std::size(kColours)]; }
const char* dash_of(std::size_t series) { return kDashes[series / std::size(kColours) % std::size(kDashes)]; }

template <typename... Values>
std::string format(const char* text, Values... values) {
  char buffer[1024];
  std::snprintf(buffer, sizeof buffer, text, values...);
  return buffer;
}

std::string escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return result;
}

std::string text_at(double x, double y, const char* attributes, const std::string& text) {
  return format("<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes) + escape(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* attributes) {
  return format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, attributes);
}

// Four shapes and nine colours: 36 series differ by their dots alone.
std::string marker(double x, double y, std::size_t series, bool hollow) {
  const std::string colour = "\"" + std::string(colour_of(series)) + "\"";
  const std::string text =
      "fill=" + (hollow ? "\"white\" stroke=" + colour + " stroke-width=\"1.4\"" : colour) + "/>\n";
  const char* fill = text.c_str();
  switch (series % 4) {
    case 0: return format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" %s", x, y, fill);
    case 1: return format("<rect x=\"%.1f\" y=\"%.1f\" width=\"6.6\" height=\"6.6\" %s", x - 3.3, y - 3.3, fill);
    case 2: return format("<path d=\"M%.1f %.1f l4.3 7.4 l-8.6 0 z\" %s", x, y - 4.6, fill);
    default: return format("<path d=\"M%.1f %.1f l4.6 4.6 l-4.6 4.6 l-4.6 -4.6 z\" %s", x, y - 4.6, fill);
  }
}

std::string path(const std::string& points, std::size_t series) {
  return "<path d=\"" + points + "\" fill=\"none\" stroke=\"" + colour_of(series) + "\" stroke-width=\"1.8\"" +
         dash_of(series) + "/>\n";
}

// One axis of one plot: it maps data to pixels, and places ticks.
class Scale {
 public:
  Scale(const Axis& axis, std::vector<double> data, double start, double end)
      : logarithmic_(axis.logarithmic), start_(start), end_(end) {
    std::erase_if(data, [this](double v) { return std::isnan(v) || (logarithmic_ && v <= 0); });
    const auto [least, greatest] = std::minmax_element(data.begin(), data.end());
    low_ = data.empty() ? 1 : *least;
    high_ = data.empty() ? 10 : *greatest;
    ends_ = {low_, high_};
    if (!axis.names.empty()) {
      low_ = -0.5;
      high_ = static_cast<double>(axis.names.size()) - 0.5;
    } else if (logarithmic_) {
      const double margin = std::max(0.06, 0.04 * std::log10(high_ / low_));
      low_ = std::log10(low_) - margin;
      high_ = std::log10(high_) + margin;
    } else {
      const double margin = 0.08 * (high_ - std::min(low_, axis.from_zero ? 0.0 : low_));
      low_ = axis.from_zero ? std::min(low_, 0.0) : low_ - margin;
      high_ += margin;
    }
    low_ = std::isnan(axis.low) ? low_ : place(axis.low);
    high_ = std::isnan(axis.high) ? high_ : place(axis.high);
    high_ = high_ > low_ ? high_ : low_ + 1;
  }

  [[nodiscard]] double pixel(double value) const {
    return start_ + (place(value) - low_) / (high_ - low_) * (end_ - start_);
  }
  [[nodiscard]] bool shows(double value) const {
    return !std::isnan(value) && (!logarithmic_ || value > 0) && place(value) >= low_ - 1e-9 &&
           place(value) <= high_ + 1e-9;
  }

  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> result;
    if (!logarithmic_) {
      const double rough = (high_ - low_) / 5, power = std::pow(10, std::floor(std::log10(rough)));
      const double part = rough / power, step = power * (part > 5 ? 10 : part > 2 ? 5 : part > 1 ? 2 : 1);
      const auto last = static_cast<int>(std::floor((high_ + 1e-9) / step));
      for (auto i = static_cast<int>(std::ceil(low_ / step)); i <= last; ++i) {
        result.push_back(i * step);
      }
      return result;
    }
    const int every = std::max(1, static_cast<int>(std::ceil((high_ - low_) / 7)));
    for (auto decade = static_cast<int>(std::floor(low_)); decade <= high_; decade += every) {
      for (const double part : {1.0, 2.0, 5.0}) {
        const double value = part * std::pow(10, decade);
        if ((part == 1 || high_ - low_ < 2) && shows(value)) {
          result.push_back(value);
        }
      }
    }
    if (result.empty()) {  // for example between 6 and 9
      std::copy_if(ends_.begin(), ends_.end(), std::back_inserter(result), [this](double v) { return shows(v); });
    }
    return result;
  }

 private:
  [[nodiscard]] double place(double value) const { return logarithmic_ ? std::log10(value) : value; }
  bool logarithmic_;
  double start_, end_, low_ = 0, high_ = 1;
  std::set<double> ends_;  // ends of the data
};

std::vector<double> column(const Plot& plot, bool y) {
  std::vector<double> values;
  for (const Series& series : plot.series) {
    for (const auto& point : series.points) {
      values.push_back(y ? point.second : point.first);
    }
  }
  if (y) {
    values.push_back(plot.reference);
  }
  return values;
}

std::string draw_axes(const Plot& plot, const Scale& x, const Scale& y, double left, double bottom,
                      const Layout& layout) {
  const double width = layout.width, height = layout.height;
  const double right = left + width, middle = left + width / 2;
  std::string svg = text_at(left, kTop - 18, "font-size=\"14\" font-weight=\"bold\"", plot.title);
  for (std::size_t i = 0; i < plot.y.names.size(); ++i) {
    const double at = y.pixel(static_cast<double>(i));
    svg += line(left, at, right, at, "stroke=\"#f2f2f2\"");
    svg += text_at(left - 7, at + 4, "text-anchor=\"end\"", plot.y.names[i]);
  }
  for (const double tick : plot.y.names.empty() ? y.ticks() : std::vector<double>()) {
    svg += line(left, y.pixel(tick), right, y.pixel(tick), "stroke=\"#e4e4e4\"");
    svg += text_at(left - 7, y.pixel(tick) + 4, "text-anchor=\"end\"", format("%g", tick));
  }
  for (std::size_t i = 0; i < plot.x.names.size(); ++i) {
    const double at = x.pixel(static_cast<double>(i));
    svg += line(at, kTop, at, kTop + height, "stroke=\"#f2f2f2\"");
    svg +=
        text_at(at + 4, kTop + height + 14,
                format("text-anchor=\"end\" transform=\"rotate(-40 %.1f %.1f)\"", at + 4, kTop + height + 14).c_str(),
                plot.x.names[i]);
  }
  if (plot.x.names.empty()) {
    for (const double tick : x.ticks()) {
      svg += line(x.pixel(tick), kTop, x.pixel(tick), kTop + height, "stroke=\"#e4e4e4\"");
      svg += text_at(x.pixel(tick), kTop + height + 18, "text-anchor=\"middle\"", format("%g", tick));
    }
  }
  svg += text_at(middle, kTop + height + bottom - 16, "text-anchor=\"middle\"", plot.x.label);
  const double turn_x = left - 46, turn_y = kTop + height / 2;
  svg += text_at(turn_x, turn_y,
                 format("text-anchor=\"middle\" transform=\"rotate(-90 %.1f %.1f)\"", turn_x, turn_y).c_str(),
                 plot.y.label);
  svg += format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#777\"/>\n", left,
                kTop, width, height);
  return svg;
}

std::string bar(double left, double right, double y, std::size_t series) {
  return format(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"12\" fill=\"%s\" stroke=\"white\" stroke-width=\"0.3\"/>\n",
      left, y - 6, std::max(right - left, 0.5), colour_of(series));
}

std::string draw_bars(const Series& series, const Scale& x, const Scale& y, std::size_t index) {
  std::string bars;
  for (std::size_t i = 0; i + 1 < series.points.size(); i += 2) {
    const auto& [begin, row] = series.points[i];
    bars += bar(x.pixel(begin), x.pixel(series.points[i + 1].first), y.pixel(row), index);
  }
  return bars;
}

std::string draw_series(const Series& series, const Scale& x, const Scale& y, std::size_t index) {
  if (series.bars) {
    return draw_bars(series, x, y, index);
  }
  std::string points, markers;
  for (const auto& [px, py] : series.points) {
    if (x.shows(px) && y.shows(py)) {
      points += format("%s%.1f %.1f ", points.empty() ? "M" : "L", x.pixel(px), y.pixel(py));
      markers += !series.markers ? "" : marker(x.pixel(px), y.pixel(py), index, series.hollow);
    }
  }
  return (series.line && !points.empty() ? path(points, index) : "") + markers;
}

// Draws a bar, or a line, a dot or both, and the name.
std::string draw_legend(const Series& series, double x, double y, std::size_t index) {
  if (series.bars) {
    return bar(x, x + 22, y, index) + text_at(x + 28, y + 4, "", series.name);
  }
  return (series.line ? path(format("M%.1f %.1f h22", x, y), index) : "") +
         (series.markers ? marker(x + 11, y, index, series.hollow) : "") + text_at(x + 28, y + 4, "", series.name);
}

}  // namespace

std::string render_svg(const std::vector<Plot>& plots, const std::string& note, const Layout& layout) {
  std::map<std::string, std::size_t> indices;
  double bottom = kBottom, right = kRight, legends = 0;
  for (const Plot& plot : plots) {
    bottom = plot.x.names.empty() ? bottom : kNamesBottom;
    legends = std::max(legends, kTop + static_cast<double>(plot.series.size()) * kLegendRow + 8);
    for (const Series& series : plot.series) {
      indices.emplace(series.name, indices.size());
      right = std::max(right, kLegendName + static_cast<double>(series.name.size()) * kLetter + 8);
    }
  }
  const auto count = static_cast<double>(plots.size());
  const double block = kLeft + layout.width + right, row = std::max(kTop + layout.height + bottom, legends);
  const double width = block * (layout.stacked ? 1 : count);
  const double height = row * (layout.stacked ? count : 1) + (note.empty() ? 0 : 22);
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11.5\" fill=\"#222\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      width, height, width, height);
  for (std::size_t i = 0; i < plots.size(); ++i) {
    const Plot& plot = plots[i];
    const auto place = static_cast<double>(i);
    const double left = (layout.stacked ? 0 : block * place) + kLeft;
    svg += format("<g transform=\"translate(0 %.1f)\">\n", layout.stacked ? row * place : 0.0);
    const Scale x(plot.x, column(plot, false), left, left + layout.width);
    const Scale y(plot.y, column(plot, true), kTop + layout.height, kTop);
    svg += draw_axes(plot, x, y, left, bottom, layout);
    double legend = kTop + 8;
    for (const Series& series : plot.series) {
      svg += draw_series(series, x, y, indices[series.name]);
      svg += draw_legend(series, left + layout.width + 10, legend, indices[series.name]);
      legend += kLegendRow;
    }
    if (!std::isnan(plot.reference) && y.shows(plot.reference)) {
      const double at = y.pixel(plot.reference);
      svg += line(left, at, left + layout.width, at, "stroke=\"#222\" stroke-dasharray=\"5 4\"");
      const bool beside_legend = at < legend;  // then its name stands inside of the axes
      svg += text_at(left + layout.width + (beside_legend ? -4 : 6), at + (beside_legend ? -4 : 4),
                     beside_legend ? "text-anchor=\"end\" font-style=\"italic\"" : "font-style=\"italic\"",
                     plot.reference_name);
    }
    svg += "</g>\n";
  }
  if (!note.empty()) {
    svg += text_at(kLeft, height - 12, "fill=\"#666\"", note);
  }
  return svg + "</svg>\n";
}

}  // namespace gradwire::plot
