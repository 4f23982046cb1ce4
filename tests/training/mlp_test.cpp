// The label-sorted classifier of bench_convergence: 32-64-10, 8 workers through two_shot, SGD with momentum, 2000
// steps, 3 seeds. Its loss as a ratio to uncompressed training with the same seed: seeds differ by far more.
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "bench/convergence/data.hpp"
#include "bench/convergence/experiments.hpp"
#include "bench/convergence/training.hpp"

namespace gradwire::convergence {
namespace {

constexpr std::size_t kSeedCount = 3;

Experiment experiment() {
  Experiment judged = judged_experiment();
  judged.training.evaluations = 1;
  return judged;
}

double final_loss(const Reducing& reducing, std::uint64_t seed) {
  const Experiment with = experiment();
  const auto shards = shard_by_label(draw(with.mixture, with.samples, seed, 0), static_cast<std::size_t>(with.ranks));
  return train(with.training, shards, nullptr, reducing, seed).final_loss;
}

double dense_loss(std::uint64_t seed) {
  static std::map<std::uint64_t, double> known;
  const auto found = known.find(seed);
  return found != known.end() ? found->second : known[seed] = final_loss({.policy = Policy::uniform("exact")}, seed);
}

Reducing reducing(const std::string& codec, ErrorFeedback feedback = ErrorFeedback::automatic) {
  Reducing result{.policy = Policy::uniform(codec)};
  result.policy.defaults.error_feedback = feedback;
  return result;
}

// Mean over the first seeds, paired.
double loss_ratio(const Reducing& reducing, std::size_t seeds = kSeedCount) {
  double sum = 0;
  for (std::size_t i = 0; i < seeds; ++i) {
    sum += final_loss(reducing, kSeeds[i]) / dense_loss(kSeeds[i]);
  }
  return sum / static_cast<double>(seeds);
}

TEST(Training, DenseLeavesALossToCompareWith) {
  for (std::size_t i = 0; i < kSeedCount; ++i) {
    EXPECT_GT(dense_loss(kSeeds[i]), 0.05);
    EXPECT_LT(dense_loss(kSeeds[i]), 0.5);  // 2.3 before training
  }
}

TEST(Training, EndsWhereDenseEnds) {
  EXPECT_LE(loss_ratio(reducing("int8")), 1.02);
  EXPECT_LE(loss_ratio(reducing("int4")), 1.02);
  EXPECT_LE(loss_ratio(reducing("int2")), 1.03);
  EXPECT_LE(loss_ratio(reducing("topk(10%)+int8")), 1.03);
  EXPECT_LE(loss_ratio(reducing("topk(1%)+int8")), 1.25);
}

TEST(Training, SignNeedsItsResidualOnBothHops) { EXPECT_LE(loss_ratio(reducing("sign")), 1.08); }

}  // namespace
}  // namespace gradwire::convergence
