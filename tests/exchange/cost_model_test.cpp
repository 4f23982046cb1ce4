// Tests the cost model: cases computed by hand, and properties that hold for any link and codec.
#include "exchange/model/cost_model.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace gradwire::exchange {
namespace {

constexpr double kChunk = kDefaultChunkBytes;

Cluster flat(int ranks, double rate, double latency = 0) {
  return {.ranks = ranks, .ranks_per_node = 1, .inter = {latency, rate}, .intra = {}};
}

TEST(CostModel, DenseRingByHand) {
  const Cost cost = dense_cost(flat(4, 1e6, 0.5), 1e6, 4);
  EXPECT_DOUBLE_EQ(cost.wire, 6.0);  // 2 x 3/4 x 4 s
  EXPECT_DOUBLE_EQ(cost.latency, 3.0);
  EXPECT_DOUBLE_EQ(cost.total, 9.0);
}

TEST(CostModel, ABurstIsNoPartOfALinksRate) {
  // The link passes 100 bytes at once and then 10 a second; the messages have 200 and 400 bytes.
  EXPECT_DOUBLE_EQ(link_rate(400, 10, 30), 10);
  // Without a burst, or with one that the start hides, all bytes count.
  EXPECT_DOUBLE_EQ(link_rate(400, 20, 40), 10);
  EXPECT_DOUBLE_EQ(link_rate(400, 30, 40), 10);
}

TEST(CostModel, TwoShotTakesTheLargerOfWireAndCodecPlusOneChunk) {
  // Each of two ranks sends half of the elements in each hop, in 4 chunks.
  const double elements = 8 * kChunk;
  const CodecCost codec{.bytes = 1, .encode_seconds = 0, .decode_seconds = 0};
  EXPECT_DOUBLE_EQ(two_shot_cost(flat(2, kChunk), elements, codec, codec).total, 8);
  // There are 3 - 1/P passes: one of encoding, 1.5 of decoding.
  const CodecCost slow{.bytes = 1, .encode_seconds = 2 / kChunk, .decode_seconds = 4 / kChunk};
  const Cost cost = two_shot_cost(flat(2, kChunk), elements, slow, slow);
  EXPECT_DOUBLE_EQ(cost.codec, 8 * (2 + 1.5 * 4));
  EXPECT_DOUBLE_EQ(cost.total, 64 + 8 / 4.0);
}

// A quarter of the memory is on the link at any time.
TEST(CostModel, LittleMemoryMakesAFarLinkSlow) {
  const CodecCost codec{.bytes = 1};
  Cluster cluster = flat(2, 1e9, 0.5);
  EXPECT_DOUBLE_EQ(two_shot_cost(cluster, 1e9, codec, codec).wire, 1);
  cluster.in_flight_bytes = 1e9;
  EXPECT_DOUBLE_EQ(two_shot_cost(cluster, 1e9, codec, codec).wire, 2);
  EXPECT_DOUBLE_EQ(one_shot_cost(cluster, 1e9, codec).wire, 2);
  cluster.in_flight_bytes = 4e9;
  EXPECT_DOUBLE_EQ(two_shot_cost(cluster, 1e9, codec, codec).wire, 1);
  cluster.in_flight_bytes = 0;  // four lanes remain
  EXPECT_DOUBLE_EQ(two_shot_cost(cluster, 1e9, codec, codec).wire, 1e9 * 0.5 / (4 * kChunk));
}

TEST(CostModel, RanksThatShareACoreTakeTurns) {
  const CodecCost codec{.bytes = 1, .encode_seconds = 1e-6, .decode_seconds = 2e-6};
  Cluster cluster = flat(4, 1e6);
  cluster.transport_seconds = 1e-7;
  const double alone = two_shot_cost(cluster, 1e6, codec, codec).codec;
  EXPECT_DOUBLE_EQ(alone, 0.75 * 3 + 0.25 * 1 + 2 + 0.15);  // 1.5 MB sent
  cluster.ranks_per_core = 0.5;                             // a spare core changes nothing
  EXPECT_EQ(two_shot_cost(cluster, 1e6, codec, codec).codec, alone);
  cluster.ranks_per_core = 2;
  EXPECT_EQ(two_shot_cost(cluster, 1e6, codec, codec).codec, 2 * alone);
  EXPECT_DOUBLE_EQ(one_shot_cost(cluster, 1e6, codec).codec, 2 * (1 + 4 * 2 + 0.3));
}

TEST(CostModel, HopsMayDiffer) {
  const CodecCost none{.bytes = 0};
  const CodecCost four{.bytes = 4};
  const Cluster cluster = flat(4, 1e6);
  const double first = two_shot_cost(cluster, 1e6, four, none).wire;
  const double second = two_shot_cost(cluster, 1e6, none, four).wire;
  EXPECT_DOUBLE_EQ(first, 3);
  EXPECT_DOUBLE_EQ(second, 3);
  EXPECT_DOUBLE_EQ(two_shot_cost(cluster, 1e6, four, four).wire, dense_cost(cluster, 1e6, 4).wire);
}

TEST(CostModel, OneShotSendsEverythingToEveryone) {
  const CodecCost codec{.bytes = 1, .encode_seconds = 1, .decode_seconds = 10};
  const Cost cost = one_shot_cost(flat(4, 1e6, 0.5), 1e6, codec, 1e6);
  EXPECT_DOUBLE_EQ(cost.wire, 3);
  EXPECT_DOUBLE_EQ(cost.codec, 41e6);
  EXPECT_DOUBLE_EQ(cost.latency, 1.5);
}

TEST(CostModel, RanksOfANodeShareItsLink) {
  // With 4 nodes of 4 ranks, 12 of 15 parts leave the node, through one link for four ranks.
  const Cluster cluster{.ranks = 16, .ranks_per_node = 4, .inter = {0, 1e6}, .intra = {0, 1e9}};
  const CodecCost codec{.bytes = 1};
  EXPECT_NEAR(two_shot_cost(cluster, 1e6, codec, codec).wire, 2 * 15 / 16.0 * 12 / 15.0 * 4, 1e-9);
  // In the hierarchy each byte of the result crosses once in each direction: 2 x 3/4.
  EXPECT_NEAR(hierarchical_cost(cluster, 1e6, codec, codec).wire, 1.5, 1e-9);
  EXPECT_NEAR(dense_cost(cluster, 1e6, 1).wire, 2 * 15 / 16.0, 1e-9);
}

TEST(CostModel, OneRankCostsNothing) {
  const CodecCost codec{.bytes = 4, .encode_seconds = 1, .decode_seconds = 1};
  EXPECT_EQ(dense_cost(flat(1, 1), 1e6, 4).total, 0);
  EXPECT_EQ(two_shot_cost(flat(1, 1), 1e6, codec, codec).total, 0);
  EXPECT_EQ(one_shot_cost(flat(1, 1), 1e6, codec).total, 0);
}

// On any cluster, more elements, bytes, codec time or latency never cost less, and more bandwidth never costs more.
TEST(CostModel, IsMonotone) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto log_uniform = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  for (int i = 0; i < 2000; ++i) {
    const int local = 1 << std::uniform_int_distribution<int>(1, 3)(random);
    const Cluster cluster{.ranks = local * std::uniform_int_distribution<int>(2, 512)(random),
                          .ranks_per_node = local,
                          .inter = {log_uniform(1e-6, 1e-3), log_uniform(1e6, 1e11)},
                          .intra = {log_uniform(1e-7, 1e-5), log_uniform(1e9, 1e12)}};
    const CodecCost codec{log_uniform(0.1, 4), log_uniform(1e-12, 1e-8), log_uniform(1e-12, 1e-8)};
    const double elements = log_uniform(1, 1e9);
    const auto all = [&](const Cluster& c, double n, const CodecCost& q) {
      return std::array{dense_cost(c, n, q.bytes).total, two_shot_cost(c, n, q, q).total, one_shot_cost(c, n, q).total,
                        hierarchical_cost(c, n, q, q).total};
    };
    const auto base = all(cluster, elements, codec);
    Cluster faster = cluster;
    faster.inter.bytes_per_second *= 2;
    Cluster later = cluster;
    later.inter.latency_seconds *= 2;
    CodecCost slower = codec;
    slower.encode_seconds *= 2;
    slower.decode_seconds *= 2;
    const auto quick = all(faster, elements, codec);
    const auto late = all(later, elements, codec);
    const auto more = all(cluster, 2 * elements, codec);
    const auto slow = all(cluster, elements, slower);
    for (std::size_t k = 0; k < base.size(); ++k) {
      EXPECT_LE(quick[k], base[k] * (1 + 1e-12)) << k;
      EXPECT_GE(late[k], base[k]) << k;
      EXPECT_GE(more[k], base[k]) << k;
      EXPECT_GE(slow[k], base[k]) << k;
    }
  }
}

// With a free codec of half the bytes, bandwidth-bound time halves at any scale; ratios of a fixed message do not
// depend on the unit of time.
TEST(CostModel, ScalesLikeItsUnits) {
  const CodecCost full{.bytes = 4};
  const CodecCost half{.bytes = 2};
  for (const int ranks : {2, 3, 64, 4096}) {
    const Cluster cluster = flat(ranks, 1e9);
    EXPECT_NEAR(two_shot_cost(cluster, 1e9, full, full).wire / two_shot_cost(cluster, 1e9, half, half).wire, 2, 1e-9);
    // The wire time of a large message stays below 2 N b / B at any scale.
    EXPECT_LT(two_shot_cost(cluster, 1e9, full, full).wire, 2 * 4.0 + 1e-9);
  }
}

TEST(StepCost, BucketsQueueBehindEachOther) {
  // The buckets are ready at 1, 2 and 4 of a step of 4; each takes 1.5, so they end at 2.5, 4 and 5.5.
  const std::vector<BucketCost> buckets{{1, 1.5}, {2, 1.5}, {4, 1.5}};
  const StepCost cost = step_cost(4, buckets);
  EXPECT_DOUBLE_EQ(cost.seconds, 5.5);
  EXPECT_DOUBLE_EQ(cost.exposed, 1.5);
  EXPECT_DOUBLE_EQ(step_cost(4, std::vector<BucketCost>{{1, 1}}).exposed, 0);
  EXPECT_DOUBLE_EQ(step_cost(4, {}).seconds, 4);
}

}  // namespace
}  // namespace gradwire::exchange
