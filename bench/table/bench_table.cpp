// bench_table measures how many rows of an embedding table a rank pulls and pushes per second, and the bytes sent.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "bench/support/mpi_program.hpp"
#include "bench/support/report.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/mpi.hpp"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::uint64_t rows = 1'000'000;
  std::uint32_t width = 64;
  std::size_t batch = 1000;
  int steps = 50;   // of a block
  int blocks = 11;  // the first block warms up
  std::string link;
  ReportFiles files;
};

/// Time and traffic of a block of steps.
struct Block {
  double seconds = 0;  // of the slowest rank
  double bytes = 0;    // per step, of all ranks together
};

/// Draws ids of rows on other ranks, another set for each step, so that every access costs traffic.
std::vector<std::vector<std::uint64_t>> draw_ids(const gradwire::Table& table, const Options& options) {
  std::mt19937_64 random(static_cast<std::uint64_t>(table.rank()) + 1);
  std::vector<std::vector<std::uint64_t>> steps(static_cast<std::size_t>(options.steps));
  for (auto& ids : steps) {
    while (ids.size() < options.batch) {
      const std::uint64_t id = random() % options.rows;
      if (table.owner(id) != table.rank() || table.world_size() == 1) {
        ids.push_back(id);
      }
    }
  }
  return steps;
}

template <class Step>
Block time_block(gradwire::Table& table, int steps, Step step) {
  table.synchronize();
  const std::uint64_t before = table.statistics().traffic.bytes_sent;
  MPI_Barrier(MPI_COMM_WORLD);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < steps; ++i) {
    step(static_cast<std::size_t>(i));
  }
  table.synchronize();  // every push has arrived
  double values[] = {std::chrono::duration<double>(Clock::now() - start).count(),
                     static_cast<double>(table.statistics().traffic.bytes_sent - before) / steps};
  MPI_Allreduce(MPI_IN_PLACE, &values[0], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &values[1], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return {values[0], values[1]};
}

/// With `unchanged`, it pulls the same rows again and again, to which no rank pushes.
Json measure(const Options& options, const std::string& codec, RowOptimizer optimizer, bool unchanged) {
  TableOptions t{
      .rows = options.rows, .width = options.width, .optimizer = optimizer, .codec = codec, .gradient_codec = codec};
  t.cache_bytes = unchanged ? options.rows * (options.width * sizeof(float) + 128) : 0;
  gradwire::Table table =
      mpi::make_table(gradwire::make_emulated(mpi::make_transport(MPI_COMM_WORLD), options.link), t);
  const auto ids = draw_ids(table, options);
  std::vector<float> rows(options.batch * options.width);
  const std::vector<float> gradients(rows.size(), 0.01F);
  std::vector<double> seconds;
  double bytes = 0;
  for (int block = 0; block < options.blocks; ++block) {
    const Block timed = time_block(table, options.steps, [&](std::size_t i) {
      table.pull(ids[i], rows);
      if (!unchanged) {
        table.push(ids[i], gradients);
      }
      table.tick();
    });
    if (block > 0) {
      seconds.push_back(timed.seconds / options.steps);
      bytes = timed.bytes;
    }
  }
  const double step = median(seconds);
  const double pairs = table.world_size() / 2.0;
  const double per_step = static_cast<double>(options.batch) * table.world_size();
  return {{"what", unchanged ? "pull, unchanged" : "pull + push"},
          {"optimizer", optimizer == RowOptimizer::sgd ? "sgd" : "adagrad"},
          {"codec", codec},
          {"step_ms", step * 1e3},
          {"rows_per_second_and_pair", per_step / step / pairs},
          {"bytes_per_row", bytes / per_step}};
}

int run(const Options& options) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Json report = make_report("gradwire.bench_table.1");
  report["ranks"] = ranks;
  report["link"] = options.link;
  report["rows"] = Json::array();
  report["batch"] = options.batch;
  report["width"] = options.width;
  bench::TextTable table({"what", "optimizer", "codec", "ms a step", "rows/s a pair of ranks", "bytes a row"});
  for (const bool unchanged : {false, true}) {
    for (const RowOptimizer optimizer : {RowOptimizer::sgd, RowOptimizer::adagrad}) {
      for (const char* codec : {"exact", "bf16", "int8"}) {
        if (unchanged && (optimizer != RowOptimizer::sgd || codec != std::string("exact"))) {
          continue;
        }
        const Json row = measure(options, codec, optimizer, unchanged);
        report["rows"].push_back(row);
        table.add({row["what"].get<std::string>(), row["optimizer"].get<std::string>(), row["codec"].get<std::string>(),
                   fixed(row["step_ms"].get<double>(), 2), fixed(row["rows_per_second_and_pair"].get<double>(), 0),
                   fixed(row["bytes_per_row"].get<double>(), 2)});
      }
    }
  }
  if (rank == 0) {
    const std::string head = "bench_table: " + std::to_string(ranks) + " ranks, " +
                             (options.link.empty() ? "the link as it is" : "emulated " + options.link) + ", " +
                             std::to_string(options.batch) + " rows of " + std::to_string(options.width) +
                             " a step and rank, all held by others; medians of " + std::to_string(options.blocks - 1) +
                             " blocks of " + std::to_string(options.steps) + " steps\n";
    options.files.tell(head, table, report);
  }
  return 0;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  CommandLine line{"Times pulls and pushes of embedding rows between the ranks of an MPI job."};
  line.option("--rows", options.rows, "Rows of the table").range(1, 1 << 30);
  line.option("--width", options.width, "Elements of a row").range(1, 4096);
  line.option("--batch", options.batch, "Rows a step").range(1, 1 << 20);
  line.option("--steps", options.steps, "Steps of a block").range(1, 1 << 20);
  line.option("--blocks", options.blocks, "Blocks").range(2, 1000);
  line.option("--link", options.link, "Emulate a link, such as 1Gbit/s,50us");
  options.files.add_to(line);
  line.parse(argc, argv);
  return run(options);
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::mpi_program("bench_table", argc, argv,
                                      [&](int) { return gradwire::bench::parse_and_run(argc, argv); });
}
