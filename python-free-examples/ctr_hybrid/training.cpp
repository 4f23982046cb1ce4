#include "training.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "metrics.hpp"

namespace ctr_hybrid {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns the samples of one step of one rank. The batches of a step follow each other by rank.
Batch batch_at(const Data& data, std::uint64_t step, std::uint64_t count, int rank, int world) {
  Batch batch;
  const std::uint64_t first = (step * static_cast<std::uint64_t>(world) + static_cast<std::uint64_t>(rank)) * count;
  for (std::uint64_t i = 0; i < count; ++i) {
    data.append(first + i, false, batch);
  }
  return batch;
}

double reduced(double value, MPI_Op operation) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD);
  return value;
}

/// Counts the ages of the rows read while training. Evaluation reads only current rows, which would lower the mean.
class AgeCounter {
 public:
  void add(const TrainerStatistics::Ages& before, const TrainerStatistics::Ages& after) {
    sums_.clocks += after.clocks - before.clocks;
    sums_.reads += after.reads - before.reads;
    sums_.maximum = after.maximum;
  }
  /// This is collective.
  [[nodiscard]] Run::Ages over_ranks() const {
    const double clocks = reduced(sums_.clocks, MPI_SUM);
    const double reads = reduced(sums_.reads, MPI_SUM);
    return {.maximum = static_cast<std::uint64_t>(reduced(static_cast<double>(sums_.maximum), MPI_MAX)),
            .mean = reads == 0 ? 0 : clocks / reads};
  }

 private:
  TrainerStatistics::Ages sums_;
};

/// Evaluates the held-out samples: each rank predicts its share, and rank 0 gathers them.
class Examiner {
 public:
  Examiner(const Data& data, std::uint64_t samples, int rank, int world) : rank_(rank) {
    const auto ranks = static_cast<std::uint64_t>(world);
    samples = samples / ranks * ranks;  // equal shares
    for (auto i = static_cast<std::uint64_t>(rank); i < samples; i += ranks) {
      data.append(i, true, share_);
    }
    clicks_ = gather(share_.clicks, world);
  }

  Point examine(Trainer& trainer, int world) const {
    const std::vector<float> logits = gather(trainer.predict(share_), world);
    return rank_ == 0 ? Point{.log_loss = log_loss(logits, clicks_), .auc = area_under_curve(logits, clicks_)}
                      : Point{};
  }

 private:
  [[nodiscard]] std::vector<float> gather(const std::vector<float>& values, int world) const {
    std::vector<float> all(rank_ == 0 ? values.size() * static_cast<std::size_t>(world) : 0);
    const int count = static_cast<int>(values.size());
    MPI_Gather(values.data(), count, MPI_FLOAT, all.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    return all;
  }

  int rank_;
  Batch share_;
  std::vector<float> clicks_;  // of all ranks, on rank 0
};

}  // namespace

Run train(const std::string& mode, const Data& data, const TrainingOptions& options) {
  int rank = 0;
  int world = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const std::unique_ptr<Trainer> trainer = make_trainer(mode, data, options.trainer);
  const Examiner examiner(data, options.held_out, rank, world);
  Run run;
  run.mode = mode;
  run.seed = options.trainer.seed;
  run.curve.push_back(examiner.examine(*trainer, world));
  double bytes = 0;
  AgeCounter rows;
  AgeCounter dense;
  for (std::uint64_t step = 0; step < options.steps;) {
    // Samples are made beforehand, so that only training is timed.
    const std::uint64_t until = std::min(options.steps, step + options.evaluate_every);
    std::vector<Batch> batches;
    for (std::uint64_t i = step; i <= until; ++i) {
      batches.push_back(batch_at(data, i, options.batch, rank, world));
    }
    const TrainerStatistics before = trainer->statistics();
    MPI_Barrier(MPI_COMM_WORLD);
    const Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i + 1 < batches.size(); ++i) {
      if (rank == world - 1 && options.slow_rank_ms > 0) {
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.slow_rank_ms));
      }
      trainer->step(batches[i], batches[i + 1]);
    }
    run.seconds += reduced(std::chrono::duration<double>(Clock::now() - start).count(), MPI_MAX);
    const TrainerStatistics after = trainer->statistics();
    bytes += static_cast<double>(after.bytes_sent - before.bytes_sent);
    rows.add(before.rows, after.rows);
    dense.add(before.dense, after.dense);
    step = until;
    run.curve.push_back(examiner.examine(*trainer, world));
    run.curve.back().steps = step;
    run.curve.back().seconds = run.seconds;
  }
  run.samples_per_second = static_cast<double>(options.steps * options.batch) * world / run.seconds;
  run.bytes_per_step = reduced(bytes, MPI_SUM) / world / static_cast<double>(options.steps);
  run.rows = rows.over_ranks();
  run.dense = dense.over_ranks();
  return run;
}

}  // namespace ctr_hybrid
