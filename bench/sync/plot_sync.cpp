// Draws the report of ctr_hybrid --json: AUC against time and against steps, one curve for each mode (its first seed).
//   plot_sync sync.json sync.svg
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/support/plot_program.hpp"
#include "plot/svg_plot.hpp"

namespace {

using gradwire::plot::Axis;
using gradwire::plot::Plot;
using gradwire::plot::Series;

constexpr double kPercent = 100;

std::string draw(const nlohmann::json& report) {
  // A guess has 50 %, and all modes are far above it: on an axis from 0 their curves would be one line.
  const Axis auc_axis{.label = "AUC, %", .from_zero = false};
  Plot by_time{.title = "AUC against time", .x = {.label = "seconds", .logarithmic = true}, .y = auc_axis};
  Plot by_steps{.title = "AUC against steps", .x = {.label = "steps"}, .y = auc_axis};
  std::set<std::string> drawn;
  for (const auto& row : report.at("rows")) {
    const auto mode = row.at("mode").get<std::string>();
    if (!drawn.insert(mode).second) {
      continue;
    }
    Series time{.name = mode};
    Series steps{.name = mode};
    for (const auto& point : row.at("curve")) {
      if (const double step = point.at("steps"); step > 0) {
        const double auc = kPercent * point.at("auc").get<double>();
        time.points.emplace_back(point.at("seconds"), auc);
        steps.points.emplace_back(step, auc);
      }
    }
    by_time.series.push_back(time);
    by_steps.series.push_back(steps);
  }
  const auto link = report.at("link").get<std::string>();
  return gradwire::plot::render_svg({by_time, by_steps}, report.at("ranks").dump() + " ranks, " +
                                                             (link.empty() ? "the link as it is" : "emulated " + link) +
                                                             ", " + report.at("data").get<std::string>());
}

}  // namespace

int main(int argc, char** argv) { return gradwire::bench::plot_report(argc, argv, "plot_sync", "ctr_hybrid", draw); }
