#include "bench/records/report.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "bench/convergence/statistics.hpp"
#include "plot/svg_plot.hpp"

namespace gradwire::records {
namespace {

using bench::fixed;
using bench::Json;
using convergence::Summary;

constexpr double kUncompressedBits = 32;

struct Measured {
  Row row;
  std::optional<double> rate;
  std::vector<double> ratios = {};  // of held-out losses to those of the first row, by seed
  Summary loss{NAN, NAN};           // of these ratios
  Summary training{NAN, NAN};       // of ratios of training losses, likewise
  Summary of_control{NAN, NAN};     // with a frozen second moment: of held-out losses to those of the control
  double bits = NAN, bits_in_whole = NAN;
};

std::vector<Measured> measured(const Campaign& campaign, Data data) {
  std::vector<Measured> result;
  const auto dense = campaign.results(data, campaign.rows().front());
  const auto control_row =
      std::find_if(campaign.rows().begin(), campaign.rows().end(), [](const Row& row) { return row.name == kControl; });
  const auto control = campaign.results(data, *control_row);
  for (const Row& row : campaign.rows()) {
    if (!Campaign::wanted(data, row)) {
      continue;
    }
    Measured one{.row = row, .rate = campaign.best_rate(data, row)};
    std::vector<double> training, of_control;
    for (const auto& [seed, made] : campaign.results(data, row)) {
      one.bits = made.bits;
      one.bits_in_whole = made.bits_in_whole;
      if (const auto base = dense.find(seed); base != dense.end()) {
        one.ratios.push_back(made.held_out_loss / base->second.held_out_loss);
        training.push_back(made.train_loss / base->second.train_loss);
      }
      if (const auto base = control.find(seed); row.frozen && base != control.end()) {
        of_control.push_back(made.held_out_loss / base->second.held_out_loss);
      }
    }
    if (!one.ratios.empty()) {
      one.loss = convergence::summarize(one.ratios);
      one.training = convergence::summarize(training);
    }
    if (!of_control.empty()) {
      one.of_control = convergence::summarize(of_control);
    }
    result.push_back(std::move(one));
  }
  return result;
}

std::string aim_of(const Row& row) {
  return std::isnan(row.aimed_bits) ? "" : fixed(row.aimed_bits, 2) + " bits, " + fixed(row.aimed_loss, 3);
}

// Returns whether the row meets its aim with all its seeds, against dense and, with a frozen second moment, against
// that control.
std::string verdict(const Campaign& campaign, const Measured& one) {
  if (std::isnan(one.row.aimed_bits) || static_cast<int>(one.ratios.size()) < campaign.seeds(one.row)) {
    return "";
  }
  const auto reaches = [&](double error) {  // in standard errors
    const auto within = [&](const Summary& loss) {
      return loss.mean - (error > 0 ? error * loss.standard_error : 0) <= one.row.aimed_loss;
    };
    return one.bits <= one.row.aimed_bits && within(one.loss) && (!one.row.frozen || within(one.of_control));
  };
  return reaches(0) ? "met" : reaches(1) ? "within error" : "missed";
}

const char* words(Data data) { return data == Data::iid ? "whole text" : "own part"; }

// Returns the best rate. It is marked "(end)" if it is the lowest or highest one tried, since a better one may be
// beyond.
std::string rate_text(const Campaign& campaign, const Measured& one) {
  const auto& rates = campaign.settings().rates;
  if (!one.rate) {
    return "-";
  }
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  char text[32];
  std::snprintf(text, sizeof text, "%g%s", *one.rate, *one.rate == *least || *one.rate == *most ? " (end)" : "");
  return text;
}

// Returns whether no other row has a lower loss at the same bits or fewer.
bool on_front(const Measured& one, const std::vector<Measured>& all) {
  return std::none_of(all.begin(), all.end(),
                      [&](const Measured& other) { return other.bits <= one.bits && other.loss.mean < one.loss.mean; });
}

plot::Plot plot_of(const Campaign& campaign, Data data) {
  plot::Plot plot{
      .title = std::string("AdamW, ranks draw from ") + (data == Data::iid ? "the whole text" : "parts of their own"),
      .x = {.label = "bits sent for each element, hop and step", .logarithmic = true, .low = 0.005, .high = 40},
      .y = {.label = "held-out loss, of dense", .low = 0.95, .high = 1.2, .from_zero = false},
      .reference = 1,
      .reference_name = "dense"};
  const std::vector<Measured> all = measured(campaign, data);
  plot::Series front{.name = "front", .markers = false};
  for (const Measured& one : all) {
    if (std::isnan(one.loss.mean)) {
      continue;
    }
    if (on_front(one, all)) {
      front.points.emplace_back(one.bits, one.loss.mean);
    }
    plot.series.push_back({.name = one.row.title, .points = {{one.bits, one.loss.mean}}, .line = false});
  }
  std::sort(front.points.begin(), front.points.end());
  plot.series.push_back(std::move(front));
  // Other authors report these bits for their methods. Their losses are of other models, so hollow dots at the lower
  // edge show bits alone.
  for (const auto& [name, bits] :
       {std::pair{"SparseLoCo, bits as published (2508.15706)", kUncompressedBits / (146 * 30)},
        std::pair{"MuLoCo, bits as published (2505.23725)", 2.0 / 30}}) {
    plot.series.push_back({.name = name, .points = {{bits, plot.y.low}}, .line = false, .hollow = true});
  }
  return plot;
}

}  // namespace

std::string describe(const Campaign& campaign) {
  const Settings& settings = campaign.settings();
  const Campaign::Count count = campaign.count();
  std::string rates;
  for (const double rate : settings.rates) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", rate);
    rates += (rates.empty() ? "" : ", ") + std::string(text);
  }
  return "char_lm, one block of width 128, 4 ranks, AdamW, " + std::to_string(settings.steps) +
         " steps of 8 x 32 characters a rank. Each row has the learning rate of " + rates +
         " that suits its first seed best (\"end\": the lowest or highest of them). Loss: held out, of dense with the "
         "same seed; mean and standard error. Training: the same of the loss on what is learnt, where a row that "
         "overfits less stands higher. Bits: sent for each element, hop and step, frames with headers, after the "
         "warm-up; in whole: with it. Of control: of dense training whose second moment is frozen alike. Met: by bits, "
         "and by "
         "the mean of all seeds, of the control, too; within error: by the mean less its standard error. " +
         std::to_string(count.made) + " of " + std::to_string(count.all) + " trainings are made.";
}

bench::TextTable make_table(const Campaign& campaign) {
  bench::TextTable table({"data", "policy", "bits", "in whole", "times fewer", "rate", "seeds", "loss", "s.e.",
                          "of control", "training", "aim", ""});
  for (const Data data : kData) {
    for (const Measured& one : measured(campaign, data)) {
      table.add({words(data), one.row.title, fixed(one.bits, one.bits < 1 ? 4 : 2),
                 fixed(one.bits_in_whole, one.bits_in_whole < 1 ? 4 : 2), fixed(kUncompressedBits / one.bits, 0),
                 rate_text(campaign, one), std::to_string(one.ratios.size()), fixed(one.loss.mean, 4),
                 fixed(one.loss.standard_error, 4), fixed(one.of_control.mean, 4), fixed(one.training.mean, 3),
                 aim_of(one.row), verdict(campaign, one)});
    }
  }
  return table;
}

Json make_json(const Campaign& campaign) {
  Json report = bench::make_report("gradwire.bench_records.1");
  const Campaign::Count count = campaign.count();
  report["trainings"] = {{"made", count.made}, {"all", count.all}};
  for (const Data data : kData) {
    for (const Measured& one : measured(campaign, data)) {
      report["rows"].push_back({{"data", to_string(data)},
                                {"policy", one.row.name},
                                {"title", one.row.title},
                                {"learning_rate", one.rate ? Json(*one.rate) : Json(nullptr)},
                                {"bits_per_element_and_hop", bench::number_or_null(one.bits)},
                                {"bits_per_element_and_hop_in_whole", bench::number_or_null(one.bits_in_whole)},
                                {"loss_ratios", one.ratios},
                                {"loss_ratio", bench::number_or_null(one.loss.mean)},
                                {"standard_error", bench::number_or_null(one.loss.standard_error)},
                                {"training_loss_ratio", bench::number_or_null(one.training.mean)},
                                {"loss_ratio_to_control", bench::number_or_null(one.of_control.mean)},
                                {"verdict", verdict(campaign, one)}});
    }
  }
  return report;
}

std::string plot(const Campaign& campaign) {
  return plot::render_svg(
      {plot_of(campaign, Data::iid), plot_of(campaign, Data::own)},
      "Rows outside the picture are cut. Hollow dots: bits as published, without a loss, since the models are others.",
      {.stacked = true, .width = 520});
}

}  // namespace gradwire::records
