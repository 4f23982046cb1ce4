// Draws what char_lm --json --evaluate-every N wrote: held-out loss against time, one curve a policy (its first seed).
//   plot_char_lm demo.json demo.svg
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>

#include "bench/support/report.hpp"
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

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: plot_char_lm IN.json OUT.svg; IN.json is what char_lm --json wrote\n", stderr);
    return 2;
  }
  try {
    std::ifstream in(argv[1]);
    if (!in) {
      throw std::runtime_error("cannot read it");
    }
    gradwire::bench::write_text(argv[2], draw(nlohmann::json::parse(in)));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plot_char_lm: %s: %s\n", argv[1], error.what());
    return 1;
  }
}
