// bench_osu: times MPI_Allreduce as OSU's osu_allreduce does: one pair of buffers, warm-up, each call by itself with a
// barrier behind it, the mean over calls and ranks. Links nothing of gradwire, so that the same program runs with the
// drop-in and without; bench/osu/compare makes pairs of such runs.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "bench/support/mpi_program.hpp"
#include "bench/support/placement.hpp"

namespace gradwire::bench {
namespace {

struct Options {
  std::string min_bytes = "4", max_bytes = "64MiB";
  std::string placement = "aligned";
  int warmup = 40;
  int calls = 200;
  double seconds = 1;  // of a size, at most
  ReportFiles files;
};

// The counts of OSU's benchmarks are 1,000 up to 8 KiB and 100 above.
constexpr std::uint64_t kSmallBytes = 8192;
constexpr int kSmallTimes = 5;
constexpr int kLeastCalls = 8;

struct Row {
  double mean = 0;  // microseconds: over calls, then over ranks
  double least = 0;
  double most = 0;  // of a rank
  int calls = 0;
};

double time_call(const Buffers& buffers, int count) {
  const void* send = buffers.send() == buffers.receive() ? MPI_IN_PLACE : buffers.send();
  const double begin = MPI_Wtime();
  MPI_Allreduce(send, buffers.receive(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const double seconds = MPI_Wtime() - begin;
  MPI_Barrier(MPI_COMM_WORLD);
  return seconds;
}

// As many calls on every rank.
int calls_of(const Options& options, std::uint64_t bytes, double once) {
  const int most = bytes <= kSmallBytes ? kSmallTimes * options.calls : options.calls;
  int calls = std::clamp(static_cast<int>(options.seconds / std::max(once, 1e-9)), std::min(kLeastCalls, most), most);
  MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return calls;
}

Row measure(const Options& options, const Buffers& buffers, std::uint64_t bytes, int ranks) {
  const int count = static_cast<int>(bytes / sizeof(float));
  std::fill_n(buffers.send(), count, 0.0F);  // sums in place stay finite
  double last = 0;
  for (int i = 0; i < std::max(options.warmup, 1); ++i) {
    last = time_call(buffers, count);
  }
  Row row;
  row.calls = calls_of(options, bytes, last);
  double seconds = 0;
  for (int i = 0; i < row.calls; ++i) {
    seconds += time_call(buffers, count);
  }
  const double mine = seconds * 1e6 / row.calls;
  MPI_Reduce(&mine, &row.mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine, &row.least, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine, &row.most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  row.mean /= ranks;
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
  Table table({"bytes", "us", "least", "most", "calls"});
  // Aligned and in place as OSU has it: one pair for all sizes. Heap blocks come and go as a job's do.
  const Buffers largest(placement, placement == Placement::heap ? sizeof(float) : most);
  for (std::uint64_t bytes = parse_bytes(options.min_bytes) / 4 * 4; bytes <= most; bytes *= 2) {
    const Buffers own(placement, placement == Placement::heap ? bytes : sizeof(float));
    const Row row = measure(options, placement == Placement::heap ? own : largest, bytes, ranks);
    report["rows"].push_back(
        {{"bytes", bytes}, {"us", row.mean}, {"us_least", row.least}, {"us_most", row.most}, {"calls", row.calls}});
    table.add({std::to_string(bytes), fixed(row.mean, 2), fixed(row.least, 2), fixed(row.most, 2),
               std::to_string(row.calls)});
  }
  if (rank == 0) {
    options.files.tell("bench_osu: MPI_Allreduce of floats, " + std::to_string(ranks) + " ranks, " +
                           describe(placement) + ", " + std::to_string(options.warmup) +
                           " calls of warm-up; microseconds, mean over calls and ranks, and of the ranks\n",
                       table, report);
  }
  return 0;
}

int parse_and_run(int argc, char** argv, int rank) {
  Options options;
  CLI::App app{"Times MPI_Allreduce over message sizes in the manner of OSU's osu_allreduce."};
  app.add_option("--min-bytes", options.min_bytes, "Smallest message")->capture_default_str();
  app.add_option("--max-bytes", options.max_bytes, "Largest message")->capture_default_str();
  app.add_option("--placement", options.placement, "Where the buffers lie")
      ->check(CLI::IsMember({"aligned", "in-place", "heap"}))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "Calls before those that count")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("--calls", options.calls, "Calls that count; five times as many up to 8 KiB")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Fewer calls where a size would take longer")->capture_default_str();
  options.files.add_to(app);
  parse_on_all(app, argc, argv, rank);
  return run(options);
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::mpi_program(
      "bench_osu", argc, argv, [&](int rank) { return gradwire::bench::parse_and_run(argc, argv, rank); },
      MPI_THREAD_SINGLE);  // as MPI_Init gives
}
