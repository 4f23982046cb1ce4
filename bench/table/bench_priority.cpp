// bench_priority measures how much the pushes of an embedding table delay the steps of a session over the same link.
#include <mpi.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
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
  std::string dense = "4MiB";   // of the reduced gradients
  std::uint64_t rows = 10'000;  // pushed during a step
  std::uint32_t width = 64;
  int steps = 21;  // of each kind; the first ones warm up
  std::string link = "1Gbit/s,50us";
  ReportFiles files;
};

/// Runs steps of three kinds in turn: alone, beside pushes that have just been made, and alone again.
class Contest {
 public:
  explicit Contest(const Options& options)
      : link_(options.link.empty() ? std::nullopt : std::optional<EmulatedLink>(LinkSchedule::parse(options.link))),
        gradient_(parse_bytes(options.dense) / sizeof(float)),
        row_gradients_(options.rows * options.width, 0.01F),
        session_(mpi::make_session(transport(), Policy::uniform("exact"))),
        table_(mpi::make_table(transport(),
                               {.rows = options.rows, .width = options.width, .staleness = TableOptions::kUnbounded})),
        id_(session_.add("dense", view(gradient_.data(), gradient_.size()))) {
    for (std::uint64_t row = 0; row < options.rows; ++row) {
      ids_.push_back(row);
    }
  }

  /// Returns the seconds from ready() to the end of finish() on the slowest rank.
  double step(bool beside) {
    table_.synchronize();
    MPI_Barrier(MPI_COMM_WORLD);
    if (beside) {
      table_.push(ids_, row_gradients_);
      MPI_Barrier(MPI_COMM_WORLD);  // merging and encoding pushes is not the link's time; the first are being sent
    }
    const Clock::time_point start = Clock::now();
    session_.ready(id_);
    session_.finish();
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
  }

  /// Returns the seconds until all pushes of all ranks have arrived.
  double pushes() {
    table_.synchronize();
    MPI_Barrier(MPI_COMM_WORLD);
    const Clock::time_point start = Clock::now();
    table_.push(ids_, row_gradients_);
    table_.synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  [[nodiscard]] std::shared_ptr<Transport> transport() const {
    auto transport = mpi::make_transport(MPI_COMM_WORLD);
    return link_ ? make_throttled(std::move(transport), *link_) : transport;
  }

  std::optional<EmulatedLink> link_;
  std::vector<float> gradient_, row_gradients_;
  std::vector<std::uint64_t> ids_;
  Session session_;
  gradwire::Table table_;
  TensorId id_;
};

int run(const Options& options, int rank) {
  Contest contest(options);
  std::vector<double> alone, beside, again, pushes;
  constexpr int kWarmUp = 2;
  for (int i = 0; i < options.steps; ++i) {
    const double times[] = {contest.step(false), contest.step(true), contest.step(false), contest.pushes()};
    if (i >= kWarmUp) {
      alone.push_back(times[0]);
      beside.push_back(times[1]);
      again.push_back(times[2]);
      pushes.push_back(times[3]);
    }
  }
  const double base = median(alone);
  bench::TextTable table({"what", "ms", "to alone"});
  Json report = make_report("gradwire.bench_priority.1");
  report["link"] = options.link;
  report["dense"] = options.dense;
  report["rows"] = Json::array();
  const auto add = [&](const std::string& what, const std::vector<double>& seconds) {
    table.add({what, fixed(median(seconds) * 1e3, 2), fixed(median(seconds) / base, 2)});
    report["rows"].push_back({{"what", what}, {"ms", median(seconds) * 1e3}, {"to_alone", median(seconds) / base}});
  };
  add("step alone", alone);
  add("step beside pushes", beside);
  add("step alone, again", again);
  add("pushes alone", pushes);
  if (rank == 0) {
    options.files.tell("bench_priority: " + options.dense + " of gradients, exact, beside pushes of " +
                           std::to_string(options.rows) + " rows of " + std::to_string(options.width) + " over " +
                           (options.link.empty() ? "the link as it is" : "one emulated " + options.link) +
                           "; medians of " + std::to_string(alone.size()) + " in turn\n",
                       table, report);
  }
  return 0;
}

int parse_and_run(int argc, char** argv, int rank) {
  Options options;
  CommandLine line{"Times steps of a session alone and beside pushes of a table over the same link."};
  line.option("--dense", options.dense, "Bytes of gradients, such as 4MiB");
  line.option("--rows", options.rows, "Rows that each rank pushes").range(1, 1 << 24);
  line.option("--width", options.width, "Elements of a row").range(1, 4096);
  line.option("--steps", options.steps, "Of each kind").range(3, 1 << 20);
  line.option("--link", options.link, "Emulate this link; empty: as it is");
  options.files.add_to(line);
  line.parse(argc, argv);
  return run(options, rank);
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::mpi_program("bench_priority", argc, argv,
                                      [&](int rank) { return gradwire::bench::parse_and_run(argc, argv, rank); });
}
