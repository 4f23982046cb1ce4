// bench_overlap times steps of layers whose gradients become ready one after another, last layer first, while the next
// one is computed. It shows which of four ways hides communication best: a session, MPI_Iallreduce and MPI_Waitall as
// an unchanged job calls them (run it with the preload), MPI's own PMPI_Iallreduce, or one blocking MPI_Allreduce for
// each layer after the computation. All four take turns in one process, on the same buffers.
#include <mpi.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "bench/support/mpi_program.hpp"
#include "bench/support/samples.hpp"
#include "gradwire/mpi.hpp"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int layers = 12;
  std::string layer = "1MiB";
  double compute_ms = 2;  // of a layer
  bool device = false;    // a device computes, and the core sleeps
  std::string codec = "int8";
  int steps = 11;  // of a block
  int blocks = 9;
  ReportFiles files;
};

// Occupies the core as a backward pass would, without touching the buffers.
void compute(const Options& options) {
  const auto end = Clock::now() + std::chrono::duration<double, std::milli>(options.compute_ms);
  if (options.device) {
    std::this_thread::sleep_until(end);
  }
  while (Clock::now() < end) {
  }
}

class Job {
 public:
  Job(const Options& options, std::size_t count)
      : options_(options),
        gradients_(static_cast<std::size_t>(options.layers), std::vector<float>(count)),
        session_(mpi::make_session(MPI_COMM_WORLD, policy(options), {.reduction = Reduction::sum})) {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      fill(gradients_[i], i);
      ids_.push_back(session_.add("layer" + std::to_string(i), {gradients_[i].data(), count, DType::f32}));
    }
  }

  void by_session() {
    for_each_layer([&](std::size_t i) { session_.ready(ids_[i]); });
    session_.finish();
  }
  template <typename Start>
  void by_requests(const Start& start) {
    std::vector<MPI_Request> requests(gradients_.size());
    for_each_layer([&](std::size_t i) { start(gradients_[i], &requests[i]); });
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }
  void by_blocking_calls() {
    for_each_layer([&](std::size_t i) {
      MPI_Allreduce(MPI_IN_PLACE, gradients_[i].data(), count(i), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
  }
  void only_compute() {
    for_each_layer([](std::size_t) {});
  }
  [[nodiscard]] int count(std::size_t i) const { return static_cast<int>(gradients_[i].size()); }
  // Fills the buffers again, since sums would grow without end.
  void refill() {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      fill(gradients_[i], i);
    }
  }

 private:
  // Gives each layer its own bucket, so that the session sends the same data at the same times as MPI.
  static Policy policy(const Options& options) {
    Policy policy = Policy::uniform(options.codec);
    policy.bucket_bytes = parse_bytes(options.layer);
    return policy;
  }
  static void fill(std::vector<float>& values, std::size_t seed) {
    for (std::size_t k = 0; k < values.size(); ++k) {
      values[k] = static_cast<float>(std::sin(static_cast<double>(k * (seed + 1))));
    }
  }
  void for_each_layer(const std::function<void(std::size_t)>& done) {
    for (std::size_t i = gradients_.size(); i-- > 0;) {
      compute(options_);
      done(i);
    }
  }

  Options options_;
  std::vector<std::vector<float>> gradients_;
  Session session_;
  std::vector<TensorId> ids_;
};

struct Way {
  const char* name;
  std::function<void()> step;
};

// Returns the milliseconds of a step of the slowest rank.
double time_block(Job& job, const Way& way, int steps) {
  job.refill();
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = Clock::now();
  for (int i = 0; i < steps; ++i) {
    way.step();
  }
  double mine = std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / steps;
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

std::vector<Way> ways_of(Job& job) {
  const auto requests = [](auto call) {
    return [call](std::vector<float>& values, MPI_Request* request) {
      call(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, request);
    };
  };
  return {{"session", [&job] { job.by_session(); }},
          {"MPI_Iallreduce", [&job, start = requests(&MPI_Iallreduce)] { job.by_requests(start); }},
          {"MPI_Allreduce", [&job] { job.by_blocking_calls(); }},
          {"PMPI_Iallreduce", [&job, start = requests(&PMPI_Iallreduce)] { job.by_requests(start); }},
          {"session again", [&job] { job.by_session(); }},
          {"only computing", [&job] { job.only_compute(); }}};
}

int run(const Options& options, int rank) {
  const std::size_t count = parse_bytes(options.layer) / sizeof(float);
  Job job(options, count);
  const std::vector<Way> ways = ways_of(job);
  std::vector<std::vector<double>> times(ways.size());
  for (int block = -1; block < options.blocks; ++block) {  // the first block warms up
    for (std::size_t k = 0; k < ways.size(); ++k) {
      const std::size_t at = block % 2 == 0 ? k : ways.size() - 1 - k;
      const double time = time_block(job, ways[at], options.steps);
      if (block >= 0) {
        times[at].push_back(time);
      }
    }
  }
  if (rank != 0) {
    return 0;
  }
  TextTable table({"way", "ms a step", "of the session's"});
  Json rows = Json::array();
  for (std::size_t k = 0; k < ways.size(); ++k) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < times[k].size(); ++i) {
      ratios.push_back(times[k][i] / times[0][i]);
    }
    table.add({ways[k].name, fixed(median(times[k]), 2), fixed(median(ratios), 3)});
    rows.push_back({{"way", ways[k].name}, {"milliseconds", median(times[k])}, {"of_session", median(ratios)}});
  }
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string head = std::to_string(ranks) + " ranks, " + std::to_string(options.layers) + " layers of " +
                           options.layer + ", " + fixed(options.compute_ms, 1) + " ms of computing " +
                           (options.device ? "on a device" : "on the rank's core") + " before each, " + options.codec +
                           ", " + std::to_string(options.blocks) + " blocks of " + std::to_string(options.steps) +
                           " steps by turns, medians of the slowest rank";
  Json report = make_report("gradwire.bench_overlap.1");
  report["what"] = head;
  report["rows"] = rows;
  options.files.tell(head, table, report);
  return 0;
}

Options parse(int argc, char** argv) {
  Options options;
  CommandLine line("bench_overlap: how much of the communication hides behind computing");
  line.option("--layers", options.layers, "Layers").range(1, 1000);
  line.option("--layer", options.layer, "Bytes of each");
  line.option("--compute-ms", options.compute_ms, "Computing before each layer is ready").range(0.0, 1e6);
  line.flag("--device", options.device, "Computing leaves the core alone, as a GPU's does");
  line.option("--codec", options.codec, "Of the session; give the preload the same as GRADWIRE_CODEC");
  line.option("--steps", options.steps, "Steps of a block").range(1, 1000000);
  line.option("--blocks", options.blocks, "Blocks of each way").range(1, 1000);
  options.files.add_to(line);
  line.parse(argc, argv);
  return options;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  using namespace gradwire::bench;  // NOLINT(google-build-using-namespace)
  return mpi_program("bench_overlap", argc, argv, [&](int rank) { return run(parse(argc, argv), rank); });
}
