// bench_ratio is the compression-ratio benchmark. It reads gradients captured from training and shows, for each layer
// and policy, how small they get, the cost, and on which link compression pays; if it does not pay, it says "slower".
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/ratio/lab_times.hpp"
#include "bench/ratio/measure.hpp"
#include "bench/ratio/options.hpp"
#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/text_table.hpp"
#include "exchange/model/cost_model.hpp"
#include "plot/svg_plot.hpp"

namespace gradwire::bench {
namespace {

constexpr double kLinksGbit[] = {0.1, 1, 10, 100};

struct Speedup {
  double gbit = 0;
  double value = 0;
  bool measured = false;
  [[nodiscard]] bool slower() const { return value < 0.995; }  // below 1.00 as printed, with two digits
};

double bytes_per_second(double gbit) { return gbit * 1e9 / 8; }

// Returns the predicted seconds as two_shot. It counts each byte of the message as one element.
double compressed_seconds(const CallCost& call, const exchange::Cluster& cluster) {
  const double sent = 2.0 * (cluster.ranks - 1) / cluster.ranks * call.bytes;  // bytes, as elements, in both hops
  const exchange::CodecCost codec{call.wire_bytes / sent, call.encode_seconds / call.bytes,
                                  call.decode_seconds / call.bytes};
  return exchange::two_shot_cost(cluster, call.bytes, codec, codec).total;
}

// Returns the speedup, measured in a lab with this link (a link carries a little less than its nominal rate), or else
// predicted.
Speedup speedup(const Row& row, double gbit, int ranks, double latency_seconds, const std::vector<LabTimes>& labs) {
  for (const LabTimes& lab : labs) {
    const double part = lab.bytes_per_second() / bytes_per_second(gbit);
    const auto value = part > 0.9 && part < 1.05 ? lab.speedup(row.codec, row.cost.bytes) : std::nullopt;
    if (value) {
      return {gbit, *value, true};
    }
  }
  const exchange::Cluster cluster{.ranks = ranks, .inter = {latency_seconds, bytes_per_second(gbit)}};
  return {gbit, exchange::dense_cost(cluster, row.cost.bytes, 1).total / compressed_seconds(row.cost, cluster), false};
}

double gigabytes_per_second(double bytes, double seconds) { return seconds > 0 ? bytes / seconds / 1e9 : NAN; }

Json to_json(const Row& row, const std::vector<Speedup>& speedups) {
  Json json{{"point", row.point},
            {"layer", row.layer},
            {"policy", row.policy},
            {"codec", row.codec},
            {"elements", row.elements},
            {"bytes", row.cost.bytes},
            {"nominal_ratio", row.nominal_ratio},
            {"counted_ratio", row.counted_ratio},
            {"bytes_sent_per_rank", row.cost.wire_bytes},
            {"nmse", row.nmse},
            {"encode_gb_per_s", number_or_null(gigabytes_per_second(row.cost.bytes, row.cost.encode_seconds))},
            {"decode_add_gb_per_s", number_or_null(gigabytes_per_second(row.cost.bytes, row.cost.decode_seconds))},
            {"speedup", Json::array()}};
  for (const Speedup& each : speedups) {
    json["speedup"].push_back({{"gbit_per_s", each.gbit},
                               {"value", each.value},
                               {"how", each.measured ? "measured" : "predicted"},
                               {"slower", each.slower()}});
  }
  return json;
}

std::vector<std::string> to_cells(const Row& row, const std::vector<Speedup>& speedups) {
  std::vector<std::string> cells{std::to_string(row.point),
                                 row.layer,
                                 fixed(row.cost.bytes / 1024, 1),
                                 row.policy,
                                 row.codec,
                                 fixed(row.nominal_ratio, 2),
                                 fixed(row.counted_ratio, 2),
                                 scientific(row.nmse),
                                 fixed(gigabytes_per_second(row.cost.bytes, row.cost.encode_seconds), 1),
                                 fixed(gigabytes_per_second(row.cost.bytes, row.cost.decode_seconds), 1)};
  for (const Speedup& each : speedups) {
    cells.push_back(fixed(each.value, 2) + (each.measured ? " m" : " p") + (each.slower() ? " slower" : ""));
  }
  return cells;
}

std::vector<std::span<const Record>> split_points(const std::vector<Record>& records) {
  std::vector<std::span<const Record>> points;
  for (std::size_t first = 0; first < records.size();) {
    std::size_t end = first;
    while (end < records.size() && records[end].point == records[first].point) {
      ++end;
    }
    points.emplace_back(records.data() + first, end - first);
    first = end;
  }
  return points;
}

struct Result {
  Row row;
  std::vector<Speedup> speedups;
};

std::string plot(const std::vector<Result>& results, std::uint32_t last_point, const RatioOptions& options) {
  plot::Plot pays{.title = "Speed-up against dense, all layers, last point",
                  .x = {.label = "link, Gbit/s", .logarithmic = true},
                  .y = {.label = "speed-up"},
                  .series = {},
                  .reference = 1,
                  .reference_name = "dense"};
  plot::Plot ratio{.title = "Ratio counted at the transport, each layer alone",
                   .x = {.label = "layer, KiB", .logarithmic = true},
                   .y = {.label = "ratio"},
                   .series = {},
                   .reference = 1,
                   .reference_name = "dense"};
  bool measured = false;
  for (const Result& result : results) {
    const bool all = result.row.layer == "all layers";
    if (result.row.point != last_point) {
      continue;
    }
    if (ratio.series.empty() || ratio.series.back().name != result.row.policy) {
      ratio.series.push_back({.name = result.row.policy, .points = {}, .line = false});
    }
    if (!all) {
      ratio.series.back().points.emplace_back(result.row.cost.bytes / 1024, result.row.counted_ratio);
      continue;
    }
    pays.series.push_back({.name = result.row.policy, .points = {}});
    for (const Speedup& each : result.speedups) {
      pays.series.back().points.emplace_back(each.gbit, each.value);
      measured = measured || each.measured;
    }
  }
  return plot::render_svg({pays, ratio}, std::to_string(options.ranks) + " ranks; speed-up " +
                                             (measured ? "measured where the lab had this link, else predicted"
                                                       : "predicted (larger of wire and codec time + one chunk)") +
                                             "; dense: perfect ring");
}

std::vector<Result> measure_everything(const std::vector<Record>& records, const RatioOptions& options) {
  std::vector<LabTimes> labs;
  for (const auto& file : options.lab) {
    labs.emplace_back(file, options.ranks);
  }
  std::vector<NamedPolicy> policies;
  for (const auto& text : options.policies) {
    policies.push_back(make_policy(text));
  }
  std::vector<Result> results;
  for (const auto& point : split_points(records)) {
    for (const auto& policy : policies) {
      for (Row& row : measure_point(policy, point, options.ranks)) {
        std::vector<Speedup> speedups;
        for (const double gbit : kLinksGbit) {
          speedups.push_back(speedup(row, gbit, options.ranks, options.latency_us * 1e-6, labs));
        }
        results.push_back({std::move(row), std::move(speedups)});
      }
    }
    std::fprintf(stderr, "point %u done\n", point.front().point);
  }
  return results;
}

int run(const RatioOptions& options) {
  const auto records = read_records(options.dump);
  if (records.empty()) {
    throw std::runtime_error(options.dump + ": holds no gradients");
  }
  const std::uint32_t last_point = records.back().point;
  const auto results = measure_everything(records, options);
  const std::vector<std::string> header{"point",      "layer",    "KiB",       "policy",    "codec",
                                        "nominal",    "counted",  "NMSE",      "enc GB/s",  "dec+add GB/s",
                                        "0.1 Gbit/s", "1 Gbit/s", "10 Gbit/s", "100 Gbit/s"};
  TextTable layers(header), totals(header);
  Json report = make_report("gradwire.bench_ratio.1");
  report["ranks"] = options.ranks;
  report["latency_us"] = options.latency_us;
  for (const Result& result : results) {
    report["rows"].push_back(to_json(result.row, result.speedups));
    if (result.row.layer == "all layers") {
      totals.add(to_cells(result.row, result.speedups));
    } else if (result.row.point == last_point) {
      layers.add(to_cells(result.row, result.speedups));
    }
  }
  std::printf(
      "bench_ratio: %d ranks. nominal: bytes of the tensor / of its frame; counted: by the transport of a real "
      "all-reduce, both hops;\nlast columns: speed-up against dense on such a link, p predicted (latency %g us, dense "
      "is a perfect ring), m measured on the lab\n\nEach layer by itself, point %u (all points: --json)\n%s\n"
      "All layers of a step through a session\n%s",
      options.ranks, options.latency_us, last_point, layers.to_text().c_str(), totals.to_text().c_str());
  if (!options.json.empty()) {
    write_report(options.json, report);
  }
  if (!options.svg.empty()) {
    write_text(options.svg, plot(results, last_point, options));
  }
  return 0;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program(
      "bench_ratio", [&] { return gradwire::bench::run(gradwire::bench::parse_ratio_options(argc, argv)); });
}
