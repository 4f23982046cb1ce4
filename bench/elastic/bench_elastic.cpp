// bench_elastic measures the cost of steps that can be undone, and of copies of residuals. Steps of a session over
// Processes, and of one that also copies, take turns with steps of a plain session with the same tensors.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/elapsed.hpp"
#include "base/units.hpp"
#include "bench/support/mpi_program.hpp"
#include "bench/support/samples.hpp"
#include "exchange/residuals/residual_store.hpp"
#include "gradwire/mpi.hpp"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string bytes = "25MB";
  std::vector<std::string> codecs{"int8", "int4", "topk(1%)+int8"};
  int blocks = 15;
  int steps = 10;
  int replicate = 0;
  double computing_ms = 0;
  ReportFiles files;
};

struct Trained {
  std::vector<float> gradient;
  std::unique_ptr<Session> session;
  TensorId id{};

  double step_seconds(const Options& options) const {
    const auto begin = Clock::now();
    const int steps = options.steps;
    for (int i = 0; i < steps; ++i) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.computing_ms));
      session->ready(id);
      session->finish();
    }
    return seconds_since(begin) / steps;
  }
};

std::unique_ptr<Trained> make(std::size_t count, const std::function<Session()>& session) {
  auto made = std::make_unique<Trained>();
  made->gradient.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    made->gradient[i] = std::sin(static_cast<float>(i));
  }
  made->session = std::make_unique<Session>(session());
  made->id = made->session->add("all", view(made->gradient.data(), count));
  return made;
}

// Returns the seconds that a store takes for the residuals of a step of `count` elements, which encoders write tile by
// tile.
double writing_seconds(std::uint64_t count) {
  constexpr std::uint64_t kTile = 4096;
  exchange::ResidualStore store;
  const exchange::ResidualKey key{0, codec::EncodeSite::local};
  const std::vector<float> tile(kTile);
  store.keep(key, 0, count);
  const auto pass = [&] {
    const auto begin = Clock::now();
    for (std::uint64_t at = 0; at < count; at += kTile) {
      if (store.can_undo()) {
        store.write(key, at, std::min(kTile, count - at), tile.data());
      }
    }
    store.commit();
    return seconds_since(begin);
  };
  const auto median_of = [&] {
    std::vector<double> samples(11);
    std::generate(samples.begin(), samples.end(), pass);
    return median(samples);
  };
  const double without = median_of();
  store.remember();
  pass();
  return median_of() - without;
}

struct Row {
  std::string codec;
  double plain, elastic, copying, aa, commit, writing;
  double copied_share;  // bytes of copies / bytes of steps
};

Policy copying_policy(const Policy& policy, int every) {
  Policy copying = policy;
  copying.elastic = Policy::Elastic{.replicate = static_cast<std::uint32_t>(every)};
  return copying;
}

Row measure(const Options& options, const std::string& codec) {
  const std::size_t count = parse_bytes(options.bytes) / sizeof(float);
  const Policy policy = Policy::uniform(codec);
  const auto plain = make(count, [&] { return mpi::make_session(MPI_COMM_WORLD, policy); });
  const auto elastic = make(count, [&] { return Session(mpi::make_processes(MPI_COMM_WORLD), policy); });
  const auto copying = options.replicate == 0 ? nullptr : make(count, [&] {
    return Session(mpi::make_processes(MPI_COMM_WORLD), copying_policy(policy, options.replicate));
  });
  plain->step_seconds(options);
  elastic->step_seconds(options);
  std::vector<double> of_plain, of_elastic, of_copying, neighbours;
  double commit = elastic->session->statistics().commit_seconds;
  for (int block = 0; block < options.blocks; ++block) {
    of_plain.push_back(plain->step_seconds(options));
    of_elastic.push_back(elastic->step_seconds(options));
    of_copying.push_back(copying == nullptr ? NAN : copying->step_seconds(options));
    if (block > 0) {
      const double before = of_plain[of_plain.size() - 2];
      neighbours.push_back(std::abs(of_plain.back() / before - 1));
    }
  }
  commit = (elastic->session->statistics().commit_seconds - commit) / (options.blocks * options.steps);
  // Each rank keeps residuals of all shards: it encodes its part of the others' shards, and the sum of its own shard.
  const bool keeps = elastic->session->residual_bytes() > 0;
  const SessionStatistics statistics = plain->session->statistics();
  const double step_bytes = static_cast<double>(statistics.all().bytes_sent) / static_cast<double>(statistics.steps);
  // Copies are sent as bf16, once in `replicate` steps.
  const double copied = static_cast<double>(elastic->session->residual_bytes()) / 2 / std::max(1, options.replicate);
  return {codec,
          median(of_plain),
          median(of_elastic),
          copying == nullptr ? NAN : median(of_copying),
          median(neighbours),
          commit,
          keeps ? writing_seconds(count) : 0,
          copying == nullptr ? NAN : copied / step_bytes};
}

int run(int argc, char** argv, int rank) {
  Options options;
  CommandLine line("What a step costs that can be undone.");
  line.option("--bytes", options.bytes, "Gradients of a step");
  line.option("--codecs", options.codecs, "How they travel, one after the other");
  line.option("--blocks", options.blocks, "Blocks of steps, of each kind of session in turn").range(2, 1000);
  line.option("--steps", options.steps, "Of a block").range(1, 1000000);
  line.option("--replicate", options.replicate, "Residuals are copied after every so many steps; 0: not measured")
      .range(0, 1000000);
  line.option("--computing", options.computing_ms, "Milliseconds of a step in which nothing is sent").range(0.0, 1e6);
  options.files.add_to(line);
  line.parse(argc, argv);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<std::string> columns{"codec", "plain ms",  "over Processes ms", "paired %",
                                   "A/A %", "commit us", "writing us",        "accounted %"};
  if (options.replicate > 0) {
    columns.insert(columns.end(), {"with copies ms", "copies, paired %", "bytes of copies, % of a step's"});
  }
  TextTable table(columns);
  Json report = make_report("gradwire.bench_elastic.1");
  for (const std::string& codec : options.codecs) {
    const Row row = measure(options, codec);
    const double accounted = 100 * (row.commit + row.writing) / row.plain;
    std::vector<std::string> cells{row.codec,
                                   fixed(1e3 * row.plain, 2),
                                   fixed(1e3 * row.elastic, 2),
                                   fixed(100 * (row.elastic / row.plain - 1), 1),
                                   fixed(100 * row.aa, 1),
                                   fixed(1e6 * row.commit, 0),
                                   fixed(1e6 * row.writing, 0),
                                   fixed(accounted, 2)};
    if (options.replicate > 0) {
      cells.insert(cells.end(), {fixed(1e3 * row.copying, 2), fixed(100 * (row.copying / row.elastic - 1), 1),
                                 fixed(100 * row.copied_share, 0)});
    }
    table.add(cells);
    report["rows"].push_back({{"codec", row.codec},
                              {"plain_seconds", row.plain},
                              {"elastic_seconds", row.elastic},
                              {"commit_seconds", row.commit},
                              {"writing_seconds", row.writing},
                              {"copying_seconds", number_or_null(row.copying)},
                              {"copied_bytes_of_a_step", number_or_null(row.copied_share)}});
  }
  if (rank == 0) {
    options.files.tell(
        "Steps that can be undone: " + std::to_string(ranks) + " ranks, " + options.bytes + " of gradients a step, " +
            fixed(options.computing_ms, 0) +
            " ms in which nothing is sent. Commit: waiting until all hold the step. Writing: residuals to a second "
            "buffer." +
            (options.replicate == 0
                 ? ""
                 : " Copies: of residuals, after every " + std::to_string(options.replicate) + " steps."),
        table, report);
  }
  return 0;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::mpi_program("bench_elastic", argc, argv,
                                      [&](int rank) { return gradwire::bench::run(argc, argv, rank); });
}
