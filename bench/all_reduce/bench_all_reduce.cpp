// bench_all_reduce: times gradwire's all-reduce over message sizes, and on request MPI's and Gloo's in the same run.
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "base/units.hpp"
#include "bench/all_reduce/contender.hpp"
#include "bench/all_reduce/measure.hpp"
#include "bench/all_reduce/options.hpp"
#include "bench/all_reduce/prediction.hpp"
#include "bench/support/command_line.hpp"
#include "bench/support/mpi_program.hpp"
#include "bench/support/report.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::bench {
namespace {

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return std::string(text).substr(0, std::string(text).find_first_of(",\n"));
}

// Every rank needs the interface and the rate, but only rank 0 has the lab's environment.
void share_lab(Options& options) {
  char name[64] = {};
  options.interface.copy(name, sizeof name - 1);
  MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
  options.interface = name;
  MPI_Bcast(&options.link_rate, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

struct LinkText {
  std::string text;
  double rate = NAN;  // bytes per second
};

LinkText describe_link(const Options& options) {
  if (!options.link.empty()) {
    const LinkSchedule link = LinkSchedule::parse(options.link);
    const double rate = link.rate_at({});
    return {"emulated " + link.to_string(), link.constant() && rate > 0 ? rate : NAN};
  }
  if (!std::isnan(options.link_rate)) {
    return {"real, carries " + fixed(options.link_rate * 8e-6, 1) + " Mbit/s each way", options.link_rate};
  }
  return {"real, rate not known", NAN};
}

std::string describe_run(const Options& options, int ranks, const LinkText& link) {
  return std::to_string(ranks) + " ranks, sum of f32, " + std::to_string(options.iterations) +
         " timed calls in alternating blocks, " + describe(options.placement) + ", " + mpi_library() +
         "; link: " + link.text + "\n";
}

void print_head(const Options& options, int ranks, const LinkText& link) {
  std::printf("bench_all_reduce: %s", describe_run(options, ranks, link).c_str());
  std::printf(
      "algbw = bytes / p50; busbw = algbw x 2(P-1)/P = algbw x %s, what a ring sends; sent: most of any rank, per "
      "call;\n"
      "cpu: all ranks together, per call; memory: beyond the tensors, worst rank;\n"
      "all codecs but exact and exact+zstd are lossy%s\n\n",
      fixed(ring_bytes(ranks, 1), 3).c_str(),
      std::isnan(link.rate) ? "" : ";\nscore = time of a perfect uncompressed ring on this link / p50");
}

TextTable make_table(bool emulated, bool predicted) {
  std::vector<std::string> header{"bytes",      "library", "codec",     "algorithm",   "min ms", "p50 ms", "algbw GB/s",
                                  "busbw GB/s", "sent",    "rel error", "ranks equal", "cpu ms", "memory", "score"};
  if (emulated) {
    header[5] += " (emulated)";
  }
  if (predicted) {
    header.insert(header.end(), {"predicted ms", "error %"});
  }
  return TextTable(std::move(header));
}

Json make_row(const ContenderRecipe& recipe, const Measurement& result, int ranks, std::uint64_t bytes,
              const LinkText& link, const Options& options, const exchange::Cost& predicted) {
  const double p50 = median(result.seconds);
  const double perfect = ring_bytes(ranks, static_cast<double>(bytes)) / link.rate;
  Json row;
  row["library"] = recipe.implementation;
  row["codec"] = recipe.codec;
  row["algorithm"] = recipe.algorithm;
  row["error_feedback"] = recipe.error_feedback;
  row["second_hop"] = recipe.second_hop.empty() ? "default" : recipe.second_hop;
  row["intra"] = recipe.intra.empty() ? Json() : Json(recipe.intra);
  row["ranks"] = ranks;
  row["bytes"] = bytes;
  row["iterations"] = result.seconds.size();
  row["time_us_min"] = quantile(result.seconds, 0) * 1e6;
  row["time_us_p50"] = p50 * 1e6;
  row["time_us_p90"] = quantile(result.seconds, 0.9) * 1e6;
  row["algorithm_bytes_per_second"] = static_cast<double>(bytes) / p50;
  row["bus_bytes_per_second"] = ring_bytes(ranks, static_cast<double>(bytes)) / p50;
  row["bytes_sent_per_rank"] = static_cast<std::uint64_t>(result.bytes_sent);
  row["bytes_sent_counted"] = recipe.implementation == "gradwire";  // otherwise the bytes of a perfect ring
  row["interface_bytes_per_rank"] = number_or_null(result.interface_bytes);
  row["rel_l2_error"] = number_or_null(result.relative_error);
  row["ranks_equal"] = result.ranks_equal;
  row["cpu_us"] = median(result.cpu_seconds) * 1e6;
  row["extra_memory_bytes"] = number_or_null(result.extra_memory);
  row["score"] = number_or_null(perfect / p50);
  row["emulated"] = !options.link.empty();
  if (options.predict) {
    row["predicted_us"] = number_or_null(predicted.total * 1e6);
    row["predicted_wire_us"] = predicted.wire * 1e6;
    row["predicted_codec_us"] = predicted.codec * 1e6;
    row["predicted_latency_us"] = predicted.latency * 1e6;
    row["prediction_error"] = number_or_null(predicted.total / p50 - 1);
  }
  return row;
}

std::string megabytes(double bytes) { return fixed(bytes / 1e6, 2) + " MB"; }

std::vector<std::string> table_row(const Json& row, std::uint64_t bytes) {
  const auto number = [&](const char* key) { return row[key].is_null() ? NAN : row[key].get<double>(); };
  const std::string intra = row["intra"].is_null() ? "" : ", intra " + row["intra"].get<std::string>();
  std::vector<std::string> cells{format_bytes(bytes),
                                 row["library"],
                                 row["codec"].get<std::string>() + intra,
                                 row["algorithm"],
                                 fixed(number("time_us_min") / 1e3, 2),
                                 fixed(number("time_us_p50") / 1e3, 2),
                                 fixed(number("algorithm_bytes_per_second") / 1e9, 3),
                                 fixed(number("bus_bytes_per_second") / 1e9, 3),
                                 megabytes(number("bytes_sent_per_rank")),
                                 scientific(number("rel_l2_error")),
                                 row["ranks_equal"].get<bool>() ? "yes" : "NO",
                                 fixed(number("cpu_us") / 1e3, 1),
                                 megabytes(number("extra_memory_bytes")),
                                 fixed(number("score"), 2)};
  if (row.contains("predicted_us")) {
    cells.push_back(fixed(number("predicted_us") / 1e3, 2));
    cells.push_back(fixed(number("prediction_error") * 100, 1));
  }
  return cells;
}

int run(Options options) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  share_lab(options);
  const LinkText link = describe_link(options);
  const auto recipes = make_recipes(options);
  Json report = make_report("gradwire.bench_all_reduce.1", mpi_library());
  report["link"] = {
      {"text", link.text}, {"bytes_per_second", number_or_null(link.rate)}, {"emulated", !options.link.empty()}};
  report["placement"] = to_string(options.placement);
  TextTable table = make_table(!options.link.empty(), options.predict);
  std::optional<Predictor> predictor;
  if (options.predict) {
    if (std::isnan(link.rate)) {
      throw CommandLineExit(2, "bench_all_reduce: --predict needs a link of one known rate, not \"" + link.text +
                                   "\": run in bench/lab/lab, or give --link or --link-rate\n");
    }
    predictor.emplace(options, link.rate);
  }
  if (rank == 0) {
    print_head(options, ranks, link);
    if (predictor) {
      std::fputs((predictor->describe() + "\n").c_str(), stdout);
    }
  }
  bool all_equal = true;
  for (const std::uint64_t bytes : options.sizes()) {
    const auto results = measure(recipes, options, bytes);
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      const exchange::Cost predicted =
          predictor ? predictor->cost(recipes[i], static_cast<double>(bytes) / 4) : exchange::Cost();
      const Json row = make_row(recipes[i], results[i], ranks, bytes, link, options, predicted);
      table.add(table_row(row, bytes));
      report["rows"].push_back(row);
      all_equal = all_equal && (results[i].ranks_equal || recipes[i].implementation != "gradwire");
    }
    if (rank == 0) {
      std::fprintf(stderr, "%s done\n", format_bytes(bytes).c_str());
    }
  }
  if (rank == 0) {
    std::fputs(table.to_text().c_str(), stdout);
    if (!options.json.empty()) {
      write_report(options.json, report);
    }
    if (!options.markdown.empty()) {
      write_text(options.markdown,
                 to_document(describe_run(options, ranks, link) + (predictor ? predictor->describe() : ""), table));
    }
    if (!all_equal) {
      std::fprintf(stderr, "bench_all_reduce: ranks hold different results, see \"ranks equal\"\n");
    }
  }
  return all_equal ? 0 : 1;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::mpi_program("bench_all_reduce", argc, argv, [&](int) {
    return gradwire::bench::run(gradwire::bench::parse_options(argc, argv));
  });
}
