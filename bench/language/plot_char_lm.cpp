// Draws the report of char_lm --json --evaluate-every N: held-out loss against time, or against the bytes that a rank
// has sent, one curve for each policy (its first seed).
//   plot_char_lm demo.json demo.svg [--x seconds|bytes]
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>

#include "bench/support/plot_program.hpp"
#include "plot/svg_plot.hpp"

namespace {

using gradwire::plot::Plot;
using gradwire::plot::Series;

constexpr double kMega = 1e6;

std::string draw(const nlohmann::json& report, bool by_bytes) {
  Plot plot{.title = by_bytes ? "Held-out loss against bytes" : "Held-out loss against time",
            .x = {.label = by_bytes ? "MB that a rank has sent" : "seconds"},
            .y = {.label = "nats per character", .from_zero = false}};
  std::set<std::string> drawn;
  for (const auto& row : report.at("rows")) {
    const auto policy = row.at("policy").get<std::string>();
    if (!drawn.insert(policy).second) {
      continue;
    }
    Series series{.name = policy};
    for (const auto& point : row.at("curve")) {
      if (by_bytes && !point.contains("bytes_sent")) {
        throw std::runtime_error("its curves have no bytes_sent; run char_lm again");
      }
      const double x = by_bytes ? point.at("bytes_sent").get<double>() / kMega : point.at("seconds").get<double>();
      series.points.emplace_back(x, point.at("held_out_loss"));
    }
    plot.series.push_back(series);
  }
  const auto& run = report.at("run");
  return gradwire::plot::render_svg(
      {plot}, run.at("ranks").dump() + " ranks on one machine, link: " + run.at("link").get<std::string>());
}

}  // namespace

int main(int argc, char** argv) {
  const bool by_bytes = argc == 5 && std::string(argv[3]) == "--x" && std::string(argv[4]) == "bytes";
  const bool by_seconds = argc == 5 && std::string(argv[3]) == "--x" && std::string(argv[4]) == "seconds";
  return gradwire::bench::plot_report(by_bytes || by_seconds ? 3 : argc, argv, "plot_char_lm", "char_lm",
                                      [&](const nlohmann::json& report) { return draw(report, by_bytes); });
}
