// Trains the label-sorted classifier of bench_convergence: 32-64-10, 8 workers through two_shot, SGD with momentum,
// 2000 steps, 3 seeds. Losses are ratios to uncompressed training with the same seed, since seeds differ by far more.
// Mutations tried, with their ratios (int4, int2, sign, top-10%, top-1%; unharmed 1.00, 1.01, 1.01, 1.03, 1.12). int4
// hides most of them: the invariants in tests/exchange are the gate, and this is a sanity check.
//   no residual on the second hop      1.01  1.12  1.42  1.02  1.60
//   residual = g - decoded             1.01  1.12  2.58  3.43  7.68
//   residual += p - decoded            339   NaN   NaN   NaN   NaN
//   no residual at all                 1.01  1.17  6.9   3.03  10.0
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "bench/convergence/data.hpp"
#include "bench/convergence/experiments.hpp"
#include "bench/convergence/statistics.hpp"
#include "bench/convergence/training.hpp"

namespace gradwire::convergence {
namespace {

constexpr std::size_t kSeedCount = 3;

Run run(const Reducing& reducing, std::uint64_t seed, std::uint64_t steps = 2000) {
  Experiment experiment = judged_experiment();
  experiment.training.steps = steps;
  experiment.training.evaluations = 1;
  const auto shards =
      shard_by_label(draw(experiment.mixture, experiment.samples, seed, 0), static_cast<std::size_t>(experiment.ranks));
  return train(experiment.training, shards, nullptr, reducing, seed);
}

Reducing reducing(const std::string& codec, ErrorFeedback feedback = ErrorFeedback::automatic) {
  Reducing result{.policy = Policy::uniform(codec)};
  result.policy.defaults.error_feedback = feedback;
  return result;
}

double dense_loss(std::uint64_t seed) {
  static std::map<std::uint64_t, double> known;
  const auto found = known.find(seed);
  return found != known.end() ? found->second : known[seed] = run(reducing("exact"), seed).final_loss;
}

// Returns the loss ratio over the first `seeds` seeds, paired.
Summary loss_ratio(const Reducing& reducing, std::size_t seeds = kSeedCount) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < seeds; ++i) {
    ratios.push_back(run(reducing, kSeeds[i]).final_loss / dense_loss(kSeeds[i]));
  }
  return summarize(ratios);
}

void expect_near_dense(const std::string& codec, double bound) {
  const Summary ratio = loss_ratio(reducing(codec));
  EXPECT_TRUE(meets(ratio, bound)) << codec << ": " << ratio.mean << " +- " << ratio.standard_error << ", bound "
                                   << bound;
}

TEST(Training, DenseLeavesALossToCompareWith) {
  for (std::size_t i = 0; i < kSeedCount; ++i) {
    EXPECT_GT(dense_loss(kSeeds[i]), 0.05);
    EXPECT_LT(dense_loss(kSeeds[i]), 0.5);  // it is 2.3 before training
  }
}

TEST(Training, FineCodecsEndNearDense) {
  expect_near_dense("int8", 1.02);
  expect_near_dense("int4", 1.02);
}

TEST(Training, CoarseCodecsEndNearDense) {
  expect_near_dense("int2", 1.03);
  expect_near_dense("sign", 1.08);
}

TEST(Training, TopkEndsNearDense) {
  expect_near_dense("topk(10%)+int8", 1.03);
  expect_near_dense("topk(1%)+int8", 1.25);
}

// Otherwise the bounds above would say nothing about residuals.
TEST(Training, WithoutErrorFeedbackItEndsFarAway) {
  EXPECT_GT(loss_ratio(reducing("int2", ErrorFeedback::off), 1).mean, 1.05);
  EXPECT_GT(loss_ratio(reducing("topk(1%)+int8", ErrorFeedback::off), 1).mean, 3);
}

TEST(Training, IsAFunctionOfItsSeed) {
  const double loss = run(reducing("int4"), 1, 50).final_loss;
  EXPECT_EQ(loss, run(reducing("int4"), 1, 50).final_loss);
  EXPECT_NE(loss, run(reducing("int4"), 2, 50).final_loss);
}

}  // namespace
}  // namespace gradwire::convergence
