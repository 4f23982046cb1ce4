// bench_auto measures whether codec = "auto" is ever slower than not compressing, or than the best codec it may choose.
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "base/units.hpp"
#include "bench/auto/contest.hpp"
#include "bench/support/mpi_program.hpp"
#include "bench/support/report.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::bench {
namespace {

struct Options {
  ContestOptions contest;
  std::string min_bytes = "4KiB", max_bytes = "64MiB", placement = "aligned";
  ReportFiles files;
  double factor = 4;
};

// Returns how far the ratio of two equal contenders deviates from 1, as the median over blocks.
double spread(const Contest& contest, const std::string& name) {
  std::vector<double> off;
  for (std::size_t i = 0; i < contest.of(name).seconds.size(); ++i) {
    off.push_back(std::abs(contest.of(name + " again").seconds[i] / contest.of(name).seconds[i] - 1));
  }
  return median(off);
}

Json row_of(const Contest& contest, bool native, const std::string& allowed) {
  Json row{{"bytes", contest.bytes}, {"allow", allowed}, {"chosen", contest.chosen}, {"switches", contest.switches}};
  for (const Contender& contender : contest.contenders) {
    row["ms"][contender.name] = median(contender.seconds) * 1e3;
  }
  row["best_fixed"] = contest.best_fixed().name;
  row["auto_to_best"] = contest.ratio("auto", contest.best_fixed().name);
  row["auto_to_dense"] = contest.ratio("auto", "dense");
  row["dense_spread"] = spread(contest, "dense");
  row["auto_to_mpi"] = number_or_null(native ? contest.ratio("auto", "MPI_Allreduce") : NAN);
  row["auto_to_mpi_mean"] = number_or_null(native ? contest.ratio("auto", "MPI mean") : NAN);
  row["mpi_spread"] = number_or_null(native ? spread(contest, "MPI_Allreduce") : NAN);
  row["deciding"] = contest.deciding;
  return row;
}

std::vector<std::string> cells(const Json& row) {
  const auto number = [&](const char* key, int digits) {
    return row[key].is_null() ? "-" : fixed(row[key].get<double>(), digits);
  };
  const auto ms = [&](const std::string& name) {
    return row["ms"].contains(name) ? fixed(row["ms"][name].get<double>(), 3) : "-";
  };
  return {format_bytes(row["bytes"].get<std::uint64_t>()),
          row["chosen"].get<std::string>(),
          ms("auto"),
          ms("dense"),
          row["best_fixed"].get<std::string>(),
          ms(row["best_fixed"]),
          ms("MPI_Allreduce"),
          number("auto_to_best", 3),
          number("auto_to_dense", 3),
          number("dense_spread", 3),
          number("auto_to_mpi", 3),
          number("mpi_spread", 3),
          number("auto_to_mpi_mean", 3),
          std::to_string(row["switches"].get<std::uint64_t>()),
          fixed(row["deciding"].get<double>() * 100, 3)};
}

int run(const Options& options) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks < 2) {
    std::fprintf(stderr, "bench_auto: one rank has nobody to exchange gradients with; start it with mpirun -np 2\n");
    return 2;
  }
  std::string allowed;
  for (const std::string& codec : options.contest.allow) {
    allowed += (allowed.empty() ? "" : ", ") + codec;
  }
  const bool native = options.contest.link.empty();
  const std::string head =
      "bench_auto: " + std::to_string(ranks) + " ranks, " +
      (native ? std::string("the link as it is") : "emulated " + Link::parse(options.contest.link).to_string()) +
      ", auto may choose dense, " + allowed + "; sessions and `MPI mean` make means in place, MPI_Allreduce sums, " +
      describe(options.contest.placement) + "; medians of " + std::to_string(options.contest.pairs) +
      " alternating blocks; spread: median distance of two equal contenders\n";
  Json report = make_report("gradwire.bench_auto.1");
  report["ranks"] = ranks;
  report["link"] = options.contest.link;
  report["placement"] = to_string(options.contest.placement);
  TextTable table({"bytes", "choice", "auto ms", "dense ms", "best fixed", "ms", "MPI ms", "auto/best", "auto/dense",
                   "spread", "auto/MPI", "spread", "auto/MPI mean", "switches", "deciding %"});
  const auto most = static_cast<double>(parse_bytes(options.max_bytes));
  auto bytes = static_cast<double>(parse_bytes(options.min_bytes));
  while (bytes <= most) {
    const Contest contest = hold(options.contest, static_cast<std::uint64_t>(bytes) / 4 * 4);
    report["rows"].push_back(row_of(contest, native, allowed));
    table.add(cells(report["rows"].back()));
    if (rank == 0) {
      std::fprintf(stderr, "%s done\n", format_bytes(contest.bytes).c_str());
    }
    bytes *= options.factor;
  }
  if (rank == 0) {
    options.files.tell(head, table, report);
  }
  return 0;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  CommandLine line{
      "Times sessions with codec = \"auto\" against fixed codecs, no compression and MPI_Allreduce, over the ranks "
      "of an MPI job, one tensor a step and no computation beside."};
  line.option("--allow", options.contest.allow, "What auto may choose, and the fixed codecs beside it");
  line.option("--link", options.contest.link, "Emulate a link, such as 1Gbit/s,50us");
  line.option("--placement", options.placement, "Where MPI_Allreduce's buffers lie")
      .one_of({"aligned", "in-place", "heap"});
  line.option("--pairs", options.contest.pairs, "Alternating blocks").range(3, 1000);
  line.option("--min-bytes", options.min_bytes, "Smallest message");
  line.option("--max-bytes", options.max_bytes, "Largest message");
  line.option("--factor", options.factor, "From one size to the next").range(1.1, 1e6);
  options.files.add_to(line);
  line.parse(argc, argv);
  options.contest.placement = parse_placement(options.placement);
  return run(options);
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::mpi_program("bench_auto", argc, argv,
                                      [&](int) { return gradwire::bench::parse_and_run(argc, argv); });
}
