// Trains one model with many variants of gradient exchange and compares each with uncompressed training, seed by seed:
// the spread between seeds is larger than the effect of compression.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/convergence/data.hpp"
#include "bench/convergence/statistics.hpp"
#include "bench/convergence/training.hpp"

namespace gradwire::convergence {

struct Variant {
  std::string policy;             // name of its file
  std::string feedback = "auto";  // as requested
  std::string second_hop = "auto";
  Reducing reducing = {};
  std::optional<double> bound = {};  // largest allowed loss ratio
};

struct Row {
  struct Seed {
    std::uint64_t seed = 0;
    double loss = 0, dense_loss = 0;          // NaN if training diverged
    double accuracy = 0, dense_accuracy = 0;  // per cent; NaN without a test set
  };
  std::string part = {}, model = {};
  Variant variant = {};
  bool keeps_residuals = false;
  std::uint64_t parameters = 0;
  double ratio = 0;                              // uncompressed / sent, all ranks, both hops, headers included
  double bits_per_element = 0;                   // sent, for each element and hop
  double bytes_per_step = 0;                     // sent, mean over ranks
  double step_seconds = 0, exposed_seconds = 0;  // on the emulated link
  std::vector<Seed> seeds = {};
  std::vector<Run::Point> curve = {};  // mean over seeds

  [[nodiscard]] Summary loss() const;
  [[nodiscard]] Summary loss_ratio() const;
  [[nodiscard]] Summary accuracy() const;
  /// Returns the percentage points below uncompressed training.
  [[nodiscard]] Summary accuracy_lost() const;
};

struct Experiment {
  std::string part;
  Training training;  // without a link
  Mixture mixture;
  std::size_t samples = 0, test_samples = 0;
  int ranks = 8;
  Link link;  // emulated, used only to time a step
  std::uint64_t timed_steps = 60;
  std::vector<std::uint64_t> seeds;
};

class Comparison {
 public:
  explicit Comparison(Experiment experiment) : experiment_(std::move(experiment)) {}

  /// Runs a few steps over the emulated link: measures the cost of a variant, and whether it keeps residuals.
  [[nodiscard]] Row probe(const Variant& variant) const;
  /// Trains each row's variant with each seed, and fills in the results.
  void train_all(std::vector<Row>& rows) const;

 private:
  [[nodiscard]] std::vector<Samples> shards(std::uint64_t seed) const;

  Experiment experiment_;
};

}  // namespace gradwire::convergence
