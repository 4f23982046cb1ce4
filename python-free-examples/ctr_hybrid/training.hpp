// Trains in one mode, and evaluates held-out samples now and then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer.hpp"

namespace ctr_hybrid {

struct TrainingOptions {
  std::uint64_t steps = 300;
  std::uint64_t batch = 256;  // samples of a rank and step
  std::uint64_t evaluate_every = 50;
  std::uint64_t held_out = 16384;  // samples
  double slow_rank_ms = 0;         // extra time that the last rank takes for each step
  TrainerOptions trainer;
};

struct Point {
  std::uint64_t steps = 0;
  double seconds = 0;  // of training, without evaluation
  double log_loss = 0;
  double auc = 0;
};

/// Results that are the same on every rank, except for `curve`, which is only valid on rank 0.
struct Run {
  std::string mode;
  std::uint64_t seed = 0;
  double seconds = 0;
  double samples_per_second = 0;
  double bytes_per_step = 0;  // sent, the mean over ranks
  /// Ages, in steps, of the rows that training read on all ranks; evaluation does not count.
  struct Ages {
    std::uint64_t maximum = 0;
    double mean = 0;
  };
  Ages rows, dense;
  std::vector<Point> curve;  // the last one is the end
};

/// This is collective over MPI_COMM_WORLD.
[[nodiscard]] Run train(const std::string& mode, const Data& data, const TrainingOptions& options);

}  // namespace ctr_hybrid
