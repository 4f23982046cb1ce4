#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "cli/gpu_plan.hpp"
#include "plot/svg_plot.hpp"

namespace gradwire::cli {
namespace {

using exchange::DeviceForecast;
using exchange::DeviceTimeline;
using exchange::DeviceWay;
using Span = DeviceTimeline::Span;

// Rows from the bottom.
enum Lane : std::uint8_t { kNccl, kLink, kCard, kHost };
constexpr std::array kKinds{DeviceTimeline::Kind::kernel, DeviceTimeline::Kind::group, DeviceTimeline::Kind::event};

Lane row_of_span(const Span& span) {
  switch (span.queue) {
    case DeviceTimeline::Queue::host: return kHost;
    case DeviceTimeline::Queue::compute: return kCard;
    default: return kLink;
  }
}

plot::Series bars_named(const char* name) {
  return {.name = name, .points = {}, .line = false, .markers = false, .hollow = false, .bars = true};
}

void add_bar(plot::Series& series, double begin, double end, Lane row) {
  series.points.emplace_back(begin * 1e6, row);
  series.points.emplace_back(end * 1e6, row);
}

// Bars too narrow to be seen are drawn as one with those that they follow at once.
plot::Series series_of(const DeviceForecast& one, DeviceTimeline::Kind kind, const char* name, double least) {
  plot::Series series = bars_named(name);
  std::map<Lane, Span> open;
  const auto close = [&](Lane row) { add_bar(series, open.at(row).begin, open.at(row).end, row); };
  for (const Span& span : one.spans) {
    if (span.kind != kind) {
      continue;
    }
    const Lane row = row_of_span(span);
    const auto before = open.find(row);
    const auto narrow = [&](const Span& of) { return of.end - of.begin < least; };
    if (before != open.end() && narrow(span) && span.begin - before->second.end < least / 4) {
      before->second.end = span.end;
      continue;
    }
    if (before != open.end()) {
      close(row);
    }
    open.insert_or_assign(row, span);
  }
  for (const auto& [row, span] : open) {
    close(row);
  }
  return series;
}

std::string title_of(const DeviceForecast& one) {
  return std::string(name_of(one.way)) + ": " + counted_text(one.counts.kernels, "kernel") + ", " +
         counted_text(one.counts.groups, "group") + ", " + rounded_microseconds(one.seconds) + " us; NCCL " +
         rounded_microseconds(one.nccl_seconds) + " us";
}

}  // namespace

std::string draw_launches(const exchange::DeviceCluster& cluster, std::uint64_t bytes) {
  constexpr double kPixels = 760;
  constexpr std::array kNames{"kernel", "group of messages", "event"};
  std::vector<DeviceForecast> drawn;
  double longest = 0;
  for (const DeviceWay way : device_ways(cluster)) {
    if (way != DeviceWay::nccl) {
      drawn.push_back(forecast_device(cluster, way, bucket_of(bytes)));
      longest = std::max({longest, drawn.back().seconds, drawn.back().nccl_seconds});
    }
  }
  std::vector<plot::Plot> plots;
  for (const DeviceForecast& one : drawn) {
    plot::Plot plot{.title = title_of(one),
                    .x = {.label = "us", .low = 0, .high = longest * 1.02e6},
                    .y = {.names = {"NCCL", "link", "GPU", "host"}}};
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      plot.series.push_back(series_of(one, kKinds[kind], kNames[kind], 1.5 * longest / kPixels));
    }
    plot.series.push_back(bars_named("NCCL's own sum"));
    add_bar(plot.series.back(), 0, one.nccl_seconds, kNccl);
    plots.push_back(std::move(plot));
  }
  return plot::render_svg(
      plots,
      cluster.name + ", " + format_bytes(bytes) + " of f32 by int8: by the model of gradwire plan --gpu, not measured",
      {.stacked = true, .width = kPixels, .height = 110});
}

}  // namespace gradwire::cli
