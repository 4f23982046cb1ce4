// Draws the report of char_lm --json --evaluate-every N: held-out loss against time, one curve for each policy (its
// first seed).
//   plot_char_lm demo.json demo.svg
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/support/plot_program.hpp"
#include "plot/svg_plot.hpp"

namespace {

using gradwire::plot::Plot;
using gradwire::plot::Series;

std::string draw(const nlohmann::json& report) {
  Plot plot{.title = "Held-out loss against time",
            .x = {.label = "seconds"},
            .y = {.label = "nats per character", .from_zero = false}};
  std::set<std::string> drawn;
  for (const auto& row : report.at("rows")) {
    const auto policy = row.at("policy").get<std::string>();
    if (!drawn.insert(policy).second) {
      continue;
    }
    Series series{.name = policy};
    for (const auto& point : row.at("curve")) {
      series.points.emplace_back(point.at("seconds"), point.at("held_out_loss"));
    }
    plot.series.push_back(series);
  }
  const auto& run = report.at("run");
  return gradwire::plot::render_svg(
      {plot}, run.at("ranks").dump() + " ranks on one machine, link: " + run.at("link").get<std::string>());
}

}  // namespace

int main(int argc, char** argv) { return gradwire::bench::plot_report(argc, argv, "plot_char_lm", "char_lm", draw); }
