// bench_osu times MPI_Allreduce like OSU's osu_allreduce: one pair of buffers, warm-up, each call by itself with a
// barrier after it, the mean over calls and ranks. It does not link the drop-in, so that the same program runs with it
// and without: bench/osu/compare makes pairs of such runs. With --pairs it compares MPI_Allreduce with PMPI_Allreduce,
// which is always the library's own, in one process, where both have the same heap and the same pages.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "bench/support/mpi_program.hpp"
#include "bench/support/placement.hpp"
#include "bench/support/samples.hpp"

namespace gradwire::bench {
namespace {

struct Options {
  std::string min_bytes = "4", max_bytes = "64MiB";
  std::string placement = "aligned";
  int warmup = 40;
  int calls = 200;
  double seconds = 1;  // limit for a size
  int pairs = 0;
  unsigned seed = 0;
  ReportFiles files;
};

// OSU's benchmarks make 1,000 calls up to 8 KiB and 100 above.
constexpr std::uint64_t kSmallBytes = 8192;
constexpr int kSmallTimes = 5;
constexpr int kLeastCalls = 8;

struct Row {
  int calls = 0;
  double mean = 0;  // microseconds: over calls, then over ranks
  // These are set only with --pairs: PMPI_Allreduce's microseconds, the median of the ratios of a pair, and the ratio
  // of two equal blocks, 95% quantile.
  double without = NAN;
  double ratio = NAN;
  double spread = NAN;
};

using AllReduce = int (*)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);

double time_call(AllReduce all_reduce, const Buffers& buffers, int count) {
  const void* send = buffers.in_place() ? MPI_IN_PLACE : buffers.send();
  const double begin = MPI_Wtime();
  all_reduce(send, buffers.receive(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const double seconds = MPI_Wtime() - begin;
  MPI_Barrier(MPI_COMM_WORLD);
  return seconds;
}

// Returns the microseconds of a call: the mean over calls, then over ranks, on every rank.
double time_block(AllReduce all_reduce, const Buffers& buffers, int count, int calls) {
  double seconds = 0;
  for (int i = 0; i < calls; ++i) {
    seconds += time_call(all_reduce, buffers, count);
  }
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double mine = seconds * 1e6 / calls;
  double sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sum / ranks;
}

// Returns the number of calls, the same on every rank.
int calls_of(const Options& options, std::uint64_t bytes, double once) {
  const int most = bytes <= kSmallBytes ? kSmallTimes * options.calls : options.calls;
  int calls = std::clamp(static_cast<int>(options.seconds / std::max(once, 1e-9)), std::min(kLeastCalls, most), most);
  MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return calls;
}

void warm_up(AllReduce all_reduce, const Options& options, const Buffers& buffers, int count) {
  for (int i = 0; i < options.warmup; ++i) {
    time_call(all_reduce, buffers, count);
  }
}

Row measure(const Options& options, const Buffers& buffers, std::uint64_t bytes) {
  const int count = static_cast<int>(bytes / sizeof(float));
  warm_up(&MPI_Allreduce, options, buffers, count);
  Row row;
  row.calls = calls_of(options, bytes, time_call(&MPI_Allreduce, buffers, count));
  row.mean = time_block(&MPI_Allreduce, buffers, count, row.calls);
  return row;
}

// Times blocks of the same call: the library's, the drop-in's, the library's again, in reverse order in every other
// pair.
Row measure_pairs(const Options& options, const Buffers& buffers, std::uint64_t bytes) {
  const int count = static_cast<int>(bytes / sizeof(float));
  warm_up(&MPI_Allreduce, options, buffers, count);
  warm_up(&PMPI_Allreduce, options, buffers, count);
  Row row;
  row.calls = std::max(1, calls_of(options, bytes, time_call(&PMPI_Allreduce, buffers, count)) / options.pairs);
  std::vector<double> dropped;
  std::vector<double> own;
  std::vector<double> ratios;
  std::vector<double> spread;
  for (int pair = 0; pair < options.pairs; ++pair) {
    std::array<double, 3> us{};
    for (std::size_t i = 0; i < us.size(); ++i) {
      const std::size_t at = pair % 2 == 0 ? i : us.size() - 1 - i;
      us.at(at) = time_block(at == 1 ? &MPI_Allreduce : &PMPI_Allreduce, buffers, count, row.calls);
    }
    dropped.push_back(us[1]);
    own.push_back((us[0] + us[2]) / 2);
    ratios.push_back(dropped.back() / own.back());
    spread.push_back(std::max(us[0] / us[2], us[2] / us[0]));
  }
  row.mean = median(dropped);
  row.without = median(own);
  row.ratio = median(ratios);
  row.spread = quantile(spread, 0.95);
  return row;
}

int run(const Options& options) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Placement placement = parse_placement(options.placement);
  const std::uint64_t most = parse_bytes(options.max_bytes);
  Json report = make_report("gradwire.bench_osu.1");
  report["ranks"] = ranks;
  report["placement"] = options.placement;
  report["warmup"] = options.warmup;
  TextTable table(options.pairs > 0 ? std::vector<std::string>{"bytes", "us", "library us", "ratio", "A/A 95%", "calls"}
                                    : std::vector<std::string>{"bytes", "us", "calls"});
  // The content of the heap decides where the library's own buffers are, and so their speed: each seed shifts the heap.
  const std::vector<char> shift(std::size_t{16} * (options.seed % 256));
  // Aligned and in-place buffers are one pair for all sizes, as in OSU. Heap blocks are allocated for each size, as in
  // a job.
  const Buffers largest(placement, placement == Placement::heap ? sizeof(float) : most);
  for (std::uint64_t bytes = parse_bytes(options.min_bytes) / 4 * 4; bytes <= most; bytes *= 2) {
    const Buffers own(placement, placement == Placement::heap ? bytes : sizeof(float));
    const Buffers& buffers = placement == Placement::heap ? own : largest;
    std::fill_n(buffers.send(), bytes / sizeof(float), 0.0F);  // sums in place stay finite
    const Row row = options.pairs > 0 ? measure_pairs(options, buffers, bytes) : measure(options, buffers, bytes);
    report["rows"].push_back({{"bytes", bytes},
                              {"us", row.mean},
                              {"calls", row.calls},
                              {"library_us", number_or_null(row.without)},
                              {"ratio", number_or_null(row.ratio)},
                              {"spread", number_or_null(row.spread)}});
    std::vector<std::string> cells{std::to_string(bytes), fixed(row.mean, 2)};
    if (options.pairs > 0) {
      cells.insert(cells.end(), {fixed(row.without, 2), fixed(row.ratio, 3), fixed(row.spread, 3)});
    }
    cells.push_back(std::to_string(row.calls));
    table.add(std::move(cells));
  }
  if (rank == 0) {
    options.files.tell(
        "bench_osu: MPI_Allreduce of floats, " + std::to_string(ranks) + " ranks, " + describe(placement) + ", " +
            std::to_string(options.warmup) + " calls of warm-up; microseconds, mean over calls and ranks" +
            (options.pairs > 0 ? "; medians of " + std::to_string(options.pairs) + " blocks in turn with PMPI_Allreduce"
                               : std::string()) +
            "\n",
        table, report);
  }
  return 0;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  CommandLine line{"Times MPI_Allreduce over message sizes in the manner of OSU's osu_allreduce."};
  line.option("--min-bytes", options.min_bytes, "Smallest message");
  line.option("--max-bytes", options.max_bytes, "Largest message");
  line.option("--placement", options.placement, "Where the buffers lie").one_of({"aligned", "in-place", "heap"});
  line.option("--warmup", options.warmup, "Calls before those that count").range(0, 100000);
  line.option("--calls", options.calls, "Calls that count; five times as many up to 8 KiB").range(1, 1000000);
  line.option("--seconds", options.seconds, "Fewer calls where a size would take longer");
  line.option("--pairs", options.pairs, "Compare with PMPI_Allreduce in so many blocks of each").range(0, 1000);
  line.option("--seed", options.seed, "Shifts the heap by 16 bytes times this, modulo 4096");
  options.files.add_to(line);
  line.parse(argc, argv);
  return run(options);
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::mpi_program(
      "bench_osu", argc, argv, [&](int) { return gradwire::bench::parse_and_run(argc, argv); },
      MPI_THREAD_SINGLE);  // the level that MPI_Init gives
}
