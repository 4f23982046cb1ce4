#include "bench/convergence/report.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/convergence/experiments.hpp"
#include "bench/support/text_table.hpp"
#include "plot/svg_plot.hpp"

namespace gradwire::convergence {
namespace {

using bench::fixed;
using bench::Json;
using bench::number_or_null;

std::string or_diverged(double value, int digits) { return std::isnan(value) ? "diverged" : fixed(value, digits); }

std::string feedback_text(const Row& row) {
  return row.variant.feedback == "auto" ? std::string("auto: ") + (row.keeps_residuals ? "on" : "off")
                                        : row.variant.feedback;
}

std::string verdict(const Row& row) {
  return !row.variant.bound ? "" : meets(row.loss_ratio(), *row.variant.bound) ? "met" : "missed";
}

bool accuracy_met(const Row& row) { return row.accuracy_lost().mean <= kPointsLostAtMost; }

std::string losses(const std::vector<Row>& rows) {
  bench::TextTable table({"model", "policy", "second hop", "feedback", "loss", "to dense", "s.e.", "bound", "", "bits",
                          "ratio", "KB a step", "ms a step", "exposed ms"});
  for (const Row& row : rows) {
    const Summary ratio = row.loss_ratio();
    table.add({row.model, row.variant.policy, row.variant.second_hop, feedback_text(row),
               or_diverged(row.loss().mean, 4), or_diverged(ratio.mean, 4), fixed(ratio.standard_error, 4),
               row.variant.bound ? fixed(*row.variant.bound, 2) : "-", verdict(row), fixed(row.bits_per_element, 2),
               fixed(row.ratio, 2), fixed(row.bytes_per_step / 1e3, 2), fixed(row.step_seconds * 1e3, 2),
               fixed(row.exposed_seconds * 1e3, 2)});
  }
  return table.to_text();
}

std::string accuracies(const std::vector<Row>& rows) {
  bench::TextTable table({"model", "policy", "feedback", "accuracy %", "points lost", "s.e.", "aim", "",
                          "loss to dense", "bits", "ratio", "KB a step", "ms a step", "exposed ms"});
  for (const Row& row : rows) {
    const Summary lost = row.accuracy_lost();
    table.add({row.model, row.variant.policy, feedback_text(row), or_diverged(row.accuracy().mean, 3),
               or_diverged(lost.mean, 3), fixed(lost.standard_error, 3), fixed(kPointsLostAtMost, 1),
               accuracy_met(row) ? "met" : "missed", or_diverged(row.loss_ratio().mean, 4),
               fixed(row.bits_per_element, 2), fixed(row.ratio, 2), fixed(row.bytes_per_step / 1e3, 1),
               fixed(row.step_seconds * 1e3, 2), fixed(row.exposed_seconds * 1e3, 2)});
  }
  return table.to_text();
}

std::vector<Row> rows_of(const std::vector<Row>& rows, const std::string& part) {
  std::vector<Row> result;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(result), [&](const Row& row) { return row.part == part; });
  return result;
}

Json json_of(const Summary& summary) {
  return {{"mean", number_or_null(summary.mean)}, {"standard_error", number_or_null(summary.standard_error)}};
}

plot::Plot plot_of(const std::string& title, const std::vector<Row>& rows,
                   const std::function<std::string(const Row&)>& name) {
  plot::Plot plot{.title = title,
                  .x = {.label = "megabytes sent per rank", .logarithmic = true},
                  .y = {.label = "loss, mean over seeds", .logarithmic = true, .high = 4}};
  for (const Row& row : rows) {
    const std::string series_name = name(row);
    if (series_name.empty()) {
      continue;
    }
    plot::Series series{.name = series_name};
    for (const Run::Point& point : row.curve) {
      series.points.emplace_back(point.megabytes, point.loss);
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

}  // namespace

std::string to_text(const std::vector<Row>& rows, const std::string& link) {
  std::string text =
      "loss: over all samples of all shards, mean of the seeds; to dense: paired by seed; s.e.: standard error of that "
      "mean;\nmet: mean - s.e. <= bound; bits: sent for each element and hop; ratio: uncompressed / sent, both hops;\n"
      "ms a step: emulated " +
      link + ", all ranks on the cores of this machine; exposed: of it after the backward pass\n";
  if (const auto mlp = rows_of(rows, "mlp"); !mlp.empty()) {
    text += "\nLabel-sorted classifier; bounds are judged here\n" + losses(mlp);
  }
  if (const auto large = rows_of(rows, "large"); !large.empty()) {
    text += "\nA larger one, of several tiles\n" + losses(large);
  }
  if (const auto accuracy = rows_of(rows, "accuracy"); !accuracy.empty()) {
    text += "\nAccuracy on the test set, policies of at least " + fixed(kAimedRatio, 1) + "x; met: mean <= aim\n" +
            accuracies(accuracy);
  }
  return text;
}

Json to_json(const Row& row) {
  const Variant& variant = row.variant;
  Json json{{"part", row.part},
            {"model", row.model},
            {"policy", variant.policy},
            {"codec", variant.reducing.policy.defaults.codec.to_string()},
            {"second_hop", variant.second_hop},
            {"error_feedback", variant.feedback},
            {"keeps_residuals", row.keeps_residuals},
            {"below_the_policy_layer", variant.reducing.bare},
            {"parameters", row.parameters},
            {"loss", json_of(row.loss())},
            {"loss_ratio", json_of(row.loss_ratio())},
            {"bound", variant.bound ? Json(*variant.bound) : Json(nullptr)},
            {"met", variant.bound ? Json(meets(row.loss_ratio(), *variant.bound)) : Json(nullptr)},
            {"bits_per_element", row.bits_per_element},
            {"ratio", row.ratio},
            {"bytes_sent_per_step_and_rank", row.bytes_per_step},
            {"emulated_step_ms", row.step_seconds * 1e3},
            {"emulated_exposed_ms", row.exposed_seconds * 1e3}};
  if (row.part == "accuracy") {
    json["accuracy_percent"] = json_of(row.accuracy());
    json["accuracy_points_lost"] = json_of(row.accuracy_lost());
    json["accuracy_met"] = accuracy_met(row);
  }
  for (const Row::Seed& seed : row.seeds) {
    json["seeds"].push_back({{"seed", seed.seed},
                             {"loss", number_or_null(seed.loss)},
                             {"dense_loss", number_or_null(seed.dense_loss)},
                             {"accuracy_percent", number_or_null(seed.accuracy)},
                             {"dense_accuracy_percent", number_or_null(seed.dense_accuracy)}});
  }
  json["curve"] = Json::array();
  for (const Run::Point& point : row.curve) {
    json["curve"].push_back(
        {{"step", point.step}, {"megabytes_sent", point.megabytes}, {"loss", number_or_null(point.loss)}});
  }
  return json;
}

std::string plot(const std::vector<Row>& rows) {
  const auto mlp = rows_of(rows, "mlp"), large = rows_of(rows, "large");
  const auto is_hop = [](const Row& row) { return row.variant.second_hop != "auto"; };
  std::vector<plot::Plot> plots;
  if (!mlp.empty()) {
    plots.push_back(plot_of(mlp.front().model + ": as the policies say", mlp, [&](const Row& row) {
      return row.variant.feedback == "auto" && !is_hop(row) ? row.variant.policy : std::string();
    }));
    plots.push_back(plot_of(mlp.front().model + ": without error feedback", mlp, [&](const Row& row) {
      return row.keeps_residuals || is_hop(row) ? std::string() : row.variant.policy;
    }));
  }
  if (!large.empty()) {
    plots.push_back(plot_of(large.front().model + ": policies and second hops", large, [&](const Row& row) {
      const std::string& name = row.variant.policy;  // without the codec of the values, since legends are narrow
      return is_hop(row) ? name.substr(0, name.find('_')) + ", " + row.variant.second_hop : name;
    }));
  }
  if (plots.empty()) {
    plots.push_back(plot_of("Loss", rows, [](const Row& row) { return row.variant.policy; }));
  }
  return plot::render_svg(
      plots, std::to_string(rows.front().seeds.size()) + " seeds; what diverged or left the picture is cut");
}

}  // namespace gradwire::convergence
