#include "bench/changing_link/report.hpp"

#include <algorithm>
#include <cmath>

#include "base/units.hpp"
#include "bench/support/samples.hpp"
#include "plot/svg_plot.hpp"

namespace gradwire::changing_link {
namespace {

using bench::fixed;
using bench::Json;

constexpr double kSlice = 0.25;  // seconds of the timeline's resolution

double to_clairvoyant(const Comparison& comparison, const Trace& trace) {
  const Trace* best = comparison.find("clairvoyant");
  return best == nullptr ? NAN : trace.total_seconds() / best->total_seconds();
}

double ratio(const Trace& trace) { return trace.bytes_sent > 0 ? trace.bytes_uncompressed / trace.bytes_sent : 1; }

// Returns the median step time of each slice, as points of a curve.
std::vector<std::pair<double, double>> step_curve(const Trace& trace) {
  std::vector<std::pair<double, double>> points;
  std::vector<double> slice;
  double from = 0;
  for (const Step& step : trace.steps) {
    if (step.start >= from + kSlice && !slice.empty()) {
      points.emplace_back(from + kSlice / 2, bench::median(slice) * 1e3);
      slice.clear();
    }
    if (slice.empty()) {
      from = std::floor(step.start / kSlice) * kSlice;
    }
    slice.push_back(step.seconds);
  }
  points.emplace_back(from + kSlice / 2, bench::median(slice) * 1e3);
  return points;
}

// Returns the time at which a use begins. A use that was chosen after the last step begins at the end.
double begin_of(const Trace& trace, std::size_t use) {
  const std::uint64_t step = trace.uses[use].step;
  return step < trace.steps.size() ? trace.steps[step].start : trace.total_seconds();
}

double end_of(const Trace& trace, std::size_t use) {
  return use + 1 < trace.uses.size() ? begin_of(trace, use + 1) : trace.total_seconds();
}

std::string text_of(const Use& use) {
  std::string text;
  for (const auto& [codec, buckets] : use.buckets) {
    text += (text.empty() ? "" : ", ") + codec + (use.buckets.size() == 1 ? "" : " " + std::to_string(buckets));
  }
  return text;
}

// Returns the mean over the buckets of the index of their codec in `levels`.
double level_of(const Use& use, const std::vector<std::string>& levels) {
  double sum = 0, count = 0;
  for (const auto& [codec, buckets] : use.buckets) {
    const auto level = std::find(levels.begin(), levels.end(), codec) - levels.begin();
    sum += static_cast<double>(level) * static_cast<double>(buckets);
    count += static_cast<double>(buckets);
  }
  return sum / count;
}

Json timeline(const Trace& trace) {
  Json json{{"uses", Json::array()}, {"step_ms", Json::array()}};
  for (std::size_t i = 0; i < trace.uses.size(); ++i) {
    const Use& use = trace.uses[i];
    json["uses"].push_back(
        {{"step", use.step}, {"seconds", begin_of(trace, i)}, {"codecs", text_of(use)}, {"reason", use.reason}});
  }
  for (const auto& [time, milliseconds] : step_curve(trace)) {
    json["step_ms"].push_back({time, milliseconds});
  }
  return json;
}

double longest(const Comparison& comparison) {
  double seconds = 0;
  for (const Trace& trace : comparison.traces) {
    seconds = std::max(seconds, trace.total_seconds());
  }
  return seconds;
}

std::vector<std::pair<double, double>> rate_curve(const Comparison& comparison, double until) {
  std::vector<std::pair<double, double>> points;
  for (int slice = 0; slice * kSlice < until; ++slice) {
    const double time = slice * kSlice;
    points.emplace_back(time + kSlice / 2, mean_rate(comparison.setting.link, time, time + kSlice) * 8e-6);
  }
  return points;
}

}  // namespace

std::string describe(const Comparison& comparison) {
  const Setting& setting = comparison.setting;
  std::string text = std::to_string(setting.ranks) + " ranks, " + std::to_string(setting.tensors) + " tensors of " +
                     std::to_string(setting.elements) + " f32 a step, backward pass of " +
                     format_duration(setting.compute) + ", " + std::to_string(setting.steps) +
                     " steps; link: emulated " + setting.link.to_string();
  for (std::size_t i = 0; i < comparison.planned.size(); ++i) {
    text += (i == 0 ? "\nclairvoyant: " : ", ") + comparison.planned[i];
  }
  return text + "\n";
}

bench::TextTable make_table(const Comparison& comparison) {
  std::vector<std::string> header{"choice", "total s", "to clairvoyant", "switches", "ratio"};
  for (const LinkPhase& phase : comparison.setting.link.phases()) {
    header.push_back("ms a step at " + Link{phase.link.bytes_per_second, {}}.to_string());
  }
  bench::TextTable table(header);
  for (const Trace& trace : comparison.traces) {
    std::vector<std::string> row{trace.name, fixed(trace.total_seconds(), 1),
                                 fixed(to_clairvoyant(comparison, trace), 3), std::to_string(trace.switches()),
                                 fixed(ratio(trace), 2)};
    for (const PhaseTime& time : phase_times(comparison.setting.link, trace.steps)) {
      row.push_back(fixed(time.mean_seconds * 1e3, 1));
    }
    table.add(row);
  }
  return table;
}

Json make_json(const Comparison& comparison) {
  const Setting& setting = comparison.setting;
  Json report = bench::make_report("gradwire.bench_changing_link.1");
  report["link"] = {{"text", setting.link.to_string()}, {"emulated", true}};
  report["ranks"] = setting.ranks;
  report["steps"] = setting.steps;
  report["tensors"] = setting.tensors;
  report["elements"] = setting.elements;
  report["compute_ms"] = std::chrono::duration<double, std::milli>(setting.compute).count();
  report["planned"] = comparison.planned;
  report["mbit_per_second"] = Json::array();
  for (const auto& [time, rate] : rate_curve(comparison, longest(comparison))) {
    report["mbit_per_second"].push_back({time, rate});
  }
  for (const Trace& trace : comparison.traces) {
    Json row{{"choice", trace.name},
             {"total_seconds", trace.total_seconds()},
             {"to_clairvoyant", bench::number_or_null(to_clairvoyant(comparison, trace))},
             {"switches", trace.switches()},
             {"ratio", ratio(trace)},
             {"setup_seconds", trace.setup_seconds},
             {"phases", Json::array()}};
    for (const PhaseTime& time : phase_times(setting.link, trace.steps)) {
      row["phases"].push_back({{"steps", time.steps},
                               {"mean_ms", bench::number_or_null(time.mean_seconds * 1e3)},
                               {"median_ms", bench::number_or_null(time.median_seconds * 1e3)}});
    }
    row.update(timeline(trace));
    report["rows"].push_back(row);
  }
  return report;
}

std::string plot(const Comparison& comparison) {
  const double until = longest(comparison);
  const plot::Axis seconds{.label = "s", .low = 0, .high = until};
  plot::Plot rate{.title = "Bandwidth (emulated)", .x = seconds, .y = {.label = "Mbit/s", .logarithmic = true}};
  rate.series.push_back({.name = "link", .points = rate_curve(comparison, until), .markers = false});
  plot::Plot codec{.title = "Codec in use", .x = seconds, .y = {.label = "codec", .names = comparison.levels}};
  plot::Plot time{.title = "Step time, median of 250 ms", .x = seconds, .y = {.label = "ms", .logarithmic = true}};
  for (const Trace& trace : comparison.traces) {
    time.series.push_back({.name = trace.name, .points = step_curve(trace), .markers = false});
    if (trace.uses.size() == 1 && trace.name == text_of(trace.uses.front())) {
      continue;  // a fixed codec
    }
    plot::Series line{.name = trace.name, .markers = false};
    for (std::size_t i = 0; i < trace.uses.size(); ++i) {
      const double level = level_of(trace.uses[i], comparison.levels);
      line.points.emplace_back(begin_of(trace, i), level);
      line.points.emplace_back(end_of(trace, i), level);
    }
    codec.series.push_back(std::move(line));
  }
  return plot::render_svg({rate, codec, time},
                          "bench_changing_link, " + std::to_string(comparison.setting.ranks) + " ranks as threads",
                          {.stacked = true, .width = 860, .height = 200});
}

}  // namespace gradwire::changing_link
