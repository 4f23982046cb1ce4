// Draws the memory of a rank that trains with ZeRO: what `bench/memory/zero` measured beside the formula, and the
// formula for mixed precision.
//   plot_zero zero.json zero.svg
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/support/plot_program.hpp"
#include "plot/svg_plot.hpp"

namespace {

using gradwire::plot::Plot;
using gradwire::plot::Series;

constexpr int kMostRanks = 64;

Plot measured_plot(const nlohmann::json& rows) {
  Plot plot{.title = "f32 training, " + rows.at(0).at("parameters").dump() + " million parameters",
            .x = {.label = "ranks", .logarithmic = true},
            .y = {.label = "MB of a rank"}};
  std::set<std::string> drawn;
  for (const auto& row : rows) {
    const auto name = row.at("name").get<std::string>();
    if (!drawn.insert(name).second) {
      continue;
    }
    Series formula{.name = name, .markers = false};
    Series measured{.name = name + ", measured", .line = false};
    for (const auto& other : rows) {
      if (other.at("name") == name) {
        formula.points.emplace_back(other.at("ranks"), other.at("formula"));
        if (!other.at("measured").is_null()) {
          measured.points.emplace_back(other.at("ranks"), other.at("measured"));
        }
      }
    }
    plot.series.push_back(std::move(formula));
    plot.series.push_back(std::move(measured));
  }
  return plot;
}

// Mixed precision takes 16 bytes a parameter without ZeRO: 2 for the parameter, 2 for its gradient, and 12 for Adam's
// state with the master copy (Rajbhandari et al., 2020). Residuals are those of the whole gradient, on each rank.
Plot mixed_precision_plot() {
  struct Row {
    const char* name;
    double fixed;      // bytes a parameter
    double shared;     // bytes a parameter that ranks share out
    double residuals;  // bytes a parameter
  };
  Plot plot{.title = "Mixed precision, by formula: 16 bytes a parameter over those of a rank",
            .x = {.label = "ranks", .logarithmic = true},
            .y = {.label = "times smaller", .high = 8}};
  for (const Row& row : {Row{"stage 1, none or in a file", 4, 12, 0}, Row{"stage 2, none or in a file", 2, 14, 0},
                         Row{"stage 2, residuals bf16", 2, 14, 2}, Row{"stage 2, residuals f32", 2, 14, 4}}) {
    Series series{.name = row.name, .markers = false};
    for (int ranks = 1; ranks <= kMostRanks; ranks *= 2) {
      const double residuals = ranks > 1 ? row.residuals : 0;
      series.points.emplace_back(ranks, 16 / (row.fixed + row.shared / ranks + residuals));
    }
    plot.series.push_back(std::move(series));
  }
  plot.series.push_back({.name = "limit of stage 1", .points = {{1, 4}, {kMostRanks, 4}}, .markers = false});
  plot.series.push_back({.name = "limit of stage 2", .points = {{1, 8}, {kMostRanks, 8}}, .markers = false});
  return plot;
}

std::string draw(const nlohmann::json& rows) {
  return gradwire::plot::render_svg({measured_plot(rows), mixed_precision_plot()},
                                    "peak memory of zero1_adam on one machine; lines: its formula");
}

}  // namespace

int main(int argc, char** argv) { return gradwire::bench::plot_report(argc, argv, "plot_zero", "zero", draw); }
