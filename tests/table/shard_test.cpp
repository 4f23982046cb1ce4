// Tests a shard: the effects of optimizers, versions, and copies that stay unchanged.
#include "table/shard.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

namespace gradwire::table {
namespace {

using Ids = std::vector<std::uint64_t>;

Shard::Settings settings(RowOptimizer optimizer, float initial_scale = 0) {
  return {.width = 3,
          .optimizer = optimizer,
          .learning_rate = 0.5F,
          .epsilon = 1e-6F,
          .initial_scale = initial_scale,
          .seed = 4};
}

std::vector<float> read(const Shard& shard, std::uint64_t id) {
  std::vector<float> row(3);
  shard.read(id, row.data());
  return row;
}

TEST(Shard, AppliesSgdAndAdagrad) {
  const std::vector<float> gradients{1, -2, 0.5F, 4, 0, -1};
  Shard sgd(settings(RowOptimizer::sgd));
  sgd.apply(Ids{3, 9}, gradients.data());
  sgd.apply(Ids{3}, gradients.data());
  EXPECT_EQ(read(sgd, 3), (std::vector<float>{-1, 2, -0.5F}));
  EXPECT_EQ(read(sgd, 9), (std::vector<float>{-2, 0, 0.5F}));
  Shard adagrad(settings(RowOptimizer::adagrad));
  adagrad.apply(Ids{3}, gradients.data());
  adagrad.apply(Ids{3}, gradients.data() + 3);
  const std::vector<float> row = read(adagrad, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const double a = gradients[i];
    const double b = gradients[i + 3];
    const double expected = -0.5 * a / (std::abs(a) + 1e-6) - 0.5 * b / (std::sqrt(a * a + b * b) + 1e-6);
    EXPECT_NEAR(row[i], expected, 1e-6);
  }
}

TEST(Shard, RowsBeginAsAFunctionOfSeedAndId) {
  Shard shard(settings(RowOptimizer::sgd, 0.1F));
  const Shard other(settings(RowOptimizer::sgd, 0.1F));
  const std::vector<float> before = read(shard, 77);
  EXPECT_EQ(before, read(other, 77));
  EXPECT_NE(before, read(shard, 78));
  for (const float value : before) {
    EXPECT_TRUE(value >= -0.1F && value < 0.1F && value != 0);
  }
  EXPECT_EQ(shard.rows(), 0U);
  const std::vector<float> gradient{1, 1, 1};
  shard.apply(Ids{77}, gradient.data());
  EXPECT_EQ(read(shard, 77)[1], before[1] - 0.5F);
  EXPECT_EQ(shard.rows(), 1U);
}

TEST(Shard, VersionsAreTheSequenceOfTheLastChange) {
  Shard shard(settings(RowOptimizer::sgd));
  const std::vector<float> gradients(6, 1.0F);
  EXPECT_EQ(shard.version(1), 0U);
  shard.apply(Ids{1, 2}, gradients.data());
  shard.assign(Ids{2}, gradients.data());
  EXPECT_EQ(shard.version(1), 1U);
  EXPECT_EQ(shard.version(2), 2U);
  EXPECT_EQ(shard.sequence(), 2U);
  EXPECT_EQ(read(shard, 2), (std::vector<float>{1, 1, 1}));
  Shard next(settings(RowOptimizer::sgd));
  next.continue_after(shard.sequence());
  EXPECT_GT(next.version(1), 2U) << "a removed row counts as changed";
}

TEST(Shard, CountsRowsThatFiniteGradientsMadeInfinite) {
  const std::vector<float> huge{3e38F, 1, 1, 1, 1, 1};
  for (const RowOptimizer optimizer : {RowOptimizer::sgd, RowOptimizer::adagrad}) {  // the value; the sum of squares
    Shard shard(settings(optimizer));
    const int enough = optimizer == RowOptimizer::sgd ? 3 : 1;
    for (int i = 0; i < enough; ++i) {
      EXPECT_EQ(shard.nonfinite_rows(), 0U);
      shard.apply(Ids{7, 9}, huge.data());
    }
    EXPECT_EQ(shard.nonfinite_rows(), 1U);
    Shard copy = shard.copy();
    shard.apply(Ids{7, 9}, huge.data());
    EXPECT_EQ(shard.nonfinite_rows(), 1U) << "the row is counted once";
    const std::vector<float> fine(6, 1.0F);
    copy.assign(Ids{7, 9}, fine.data());
    EXPECT_EQ(copy.nonfinite_rows(), optimizer == RowOptimizer::sgd ? 0U : 1U) << "optimizer state stays";
    copy.restore({.id = 7, .values = std::span(fine).first(3), .accumulators = std::span(fine).last(3)});
    EXPECT_EQ(copy.nonfinite_rows(), 0U);
    EXPECT_EQ(shard.nonfinite_rows(), 1U);
  }
}

TEST(Shard, CopiesDoNotSeeEachOther) {
  std::mt19937 random(6);
  std::vector<Shard> shards;
  std::vector<std::map<std::uint64_t, std::vector<float>>> expected(1);
  shards.emplace_back(settings(RowOptimizer::adagrad));
  for (int i = 0; i < 3000; ++i) {
    const std::size_t which = random() % shards.size();
    if (i % 300 == 299) {
      shards.push_back(shards[which].copy());
      expected.push_back(expected[which]);
      continue;
    }
    const std::uint64_t id = random() % 500;  // some pages, and rows that are new to only one copy
    const std::vector<float> value{static_cast<float>(i), static_cast<float>(id), 1};
    shards[which].assign(std::span(&id, 1), value.data());
    expected[which][id] = value;
  }
  for (std::size_t which = 0; which < shards.size(); ++which) {
    const Ids ids = shards[which].ids();
    ASSERT_EQ(ids.size(), expected[which].size());
    auto at = expected[which].begin();
    shards[which].visit(ids, [&](const Shard::Row& row) {
      ASSERT_EQ(row.id, at->first);
      ASSERT_EQ(std::vector<float>(row.values.begin(), row.values.end()), at->second) << "copy " << which;
      ASSERT_EQ(row.accumulators.size(), 3U);
      ++at;
    });
  }
}

}  // namespace
}  // namespace gradwire::table
