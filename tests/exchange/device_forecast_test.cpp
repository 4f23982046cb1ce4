// Tests the model of collectives on GPUs: the arithmetic against a table that was computed apart, what the executor
// enqueues, and properties that hold for any cluster.
#include "exchange/stream/device_forecast.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "codec/codec.hpp"
#include "gradwire/error.hpp"

namespace gradwire::exchange {
namespace {

using Queue = DeviceTimeline::Queue;

constexpr double kMiBBytes = 1 << 20;

DeviceCluster node(int cards, double latency, double rate, double nccl_latency, double nccl_rate) {
  return {.cards = cards, .inside = {latency, rate}, .nccl = {nccl_latency, nccl_rate}};
}
DeviceCluster nvlink(int cards) {
  return cards == 2   ? node(2, 12e-6, 340e9, 25e-6, 380e9)
         : cards == 4 ? node(4, 12e-6, 340e9, 35e-6, 385e9)
                      : node(8, 14e-6, 340e9, 45e-6, 392e9);
}
DeviceCluster pcie() { return node(8, 15e-6, 20e9, 40e-6, 20e9); }
DeviceCluster ethernet() { return {.nodes = 8, .between = {50e-6, 11e9}, .nccl = {120e-6, 11e9}}; }
DeviceCluster infiniband() {
  return {.nodes = 8,
          .cards = 8,
          .inside = {14e-6, 340e9},
          .between = {30e-6, 45e9},
          .nccl = {120e-6, 370e9},
          .nccl_inside = {38e-6, 340e9}};
}
DeviceCluster ethernet_a_node() {
  DeviceCluster cluster = infiniband();
  cluster.between = {60e-6, 11e9 / 8};
  cluster.nccl = {500e-6, 11e9};
  return cluster;
}

DeviceBucket bucket_of(double mib, DType dtype = DType::f32) {
  return {.count = static_cast<std::uint64_t>(mib * kMiBBytes) / element_bytes(dtype), .dtype = dtype, .codec = "int8"};
}
DeviceForecast forecast(const DeviceCluster& cluster, DeviceWay way, double mib, DType dtype = DType::f32) {
  return forecast_device(cluster, way, bucket_of(mib, dtype));
}
double us(double seconds) { return seconds * 1e6; }

// The time of two_shot with the launches that the table was computed with: headers within the launches of their frames,
// and the owner's own frame decoded while the second messages travel.
double merged_launches(const DeviceCluster& cluster, double mib, std::uint64_t lanes) {
  DeviceTimeline timeline(cluster);
  const codec::Codec codec("int8", DType::f32);
  const auto ranks = static_cast<double>(cluster.ranks());
  const auto others = static_cast<std::uint64_t>(cluster.ranks() - 1);
  const double elements = mib * kMiBBytes / 4 / static_cast<double>(lanes) / ranks;  // of a shard's chunk
  const double tiles = elements / static_cast<double>(codec::kTileElements);
  const auto tile = static_cast<double>(codec.payload_bytes(codec::kTileElements));
  const double frame = static_cast<double>(codec.frame_bytes(codec::kTileElements)) + tile * (tiles - 1);
  const auto kernel = [&](double chunks) { timeline.kernel(chunks * tiles, chunks * (4 * elements + frame)); };
  timeline.event();
  timeline.event();
  double arrived = 0;
  for (std::uint64_t turn = 0; turn < lanes + 2; ++turn) {
    const bool first = turn < lanes;
    const bool second = turn > 0 && turn <= lanes;
    if (first) {
      kernel(ranks - 1);
    }
    if (turn > 0) {
      timeline.wait(Queue::compute, arrived);
    }
    if (second) {
      timeline.kernel(tiles, 4 * elements + ranks * frame);
    }
    if (first || second) {
      const std::uint64_t rounds = (first ? 1 : 0) + (second ? 1 : 0);
      const double bytes = static_cast<double>(rounds) * frame;
      timeline.wait(Queue::messages, timeline.record(Queue::compute));
      timeline.group(rounds * others, rounds * others, bytes * (cluster.cards - 1), bytes * (ranks - cluster.cards));
      arrived = timeline.record(Queue::messages);
    }
    if (second) {
      kernel(1);
    }
    if (turn > 1) {
      kernel(ranks - 1);
    }
  }
  timeline.kernel(0, 0);
  timeline.kernel(0, 0);
  timeline.event();
  return timeline.seconds();
}

struct Row {
  DeviceCluster cluster;
  double mib;
  std::uint64_t lanes;
  double us;       // one lane
  double nccl_us;  // NCCL's own sum
};
const std::vector<Row>& rows() {
  static const std::vector<Row> kRows{
      {nvlink(2), 1, 1, 69, 45},
      {nvlink(2), 4, 1, 70, 54},
      {nvlink(2), 25, 1, 88, 111},
      {nvlink(2), 256, 9, 428, 749},
      {nvlink(4), 1, 1, 72, 57},
      {nvlink(4), 4, 1, 74, 69},
      {nvlink(4), 25, 1, 100, 155},
      {nvlink(4), 256, 5, 466, 1098},
      {nvlink(8), 1, 1, 79, 67},
      {nvlink(8), 4, 1, 81, 81},
      {nvlink(8), 25, 1, 110, 180},
      {nvlink(8), 256, 3, 528, 1261},
      {pcie(), 1, 1, 94, 149},
      {pcie(), 4, 1, 163, 425},
      {pcie(), 25, 1, 656, 2351},
      {pcie(), 256, 3, 6102, 23546},
      {ethernet(), 1, 1, 183, 304},
      {ethernet(), 4, 1, 309, 805},
      {ethernet(), 25, 1, 1199, 4308},
      {ethernet(), 256, 3, 11084, 42843},
      {infiniband(), 1, 1, 166, 143},
      {infiniband(), 4, 1, 182, 160},
      {infiniband(), 25, 1, 399, 277},
      {infiniband(), 256, 1, 2972, 1566},
      {ethernet_a_node(), 1, 1, 533, 705},
      {ethernet_a_node(), 4, 1, 1542, 1268},
      {ethernet_a_node(), 25, 1, 8611, 5209},
      {ethernet_a_node(), 256, 1, 86483, 48561},
  };
  return kRows;
}

// Mutation tried: a message costs nothing.
TEST(DeviceTimeline, ReproducesATableThatWasComputedApart) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(std::to_string(row.cluster.nodes) + " x " + std::to_string(row.cluster.cards) + ", " +
                 std::to_string(row.mib) + " MiB");
    EXPECT_NEAR(us(merged_launches(row.cluster, row.mib, row.lanes)), row.us, 1 + 5e-4 * row.us);
    EXPECT_NEAR(us(nccl_seconds(row.cluster, row.mib * kMiBBytes)), row.nccl_us, 0.6);
  }
}

// The executor launches headers apart, up to 4 us a lane, and decodes all frames at once, up to 9 us of 25 MiB.
TEST(DeviceForecast, TheExecutorIsSlowerThanThatTableByTheLaunchesThatItHasMore) {
  for (const Row& row : rows()) {
    const DeviceForecast one = forecast(row.cluster, DeviceWay::one_lane, row.mib);
    SCOPED_TRACE(std::to_string(row.cluster.ranks()) + " ranks, " + std::to_string(row.mib) + " MiB");
    EXPECT_LE(one.lanes, row.lanes);
    if (row.lanes == 1) {
      EXPECT_GT(us(one.seconds), row.us);
      EXPECT_LT(us(one.seconds), row.us + (row.mib < 10 ? 4 : 12));
    } else {
      EXPECT_NEAR(us(one.seconds), row.us, 0.06 * row.us);  // fewer lanes overlap less
    }
    EXPECT_NEAR(us(one.nccl_seconds), row.nccl_us, 0.6);
  }
}

// As tests/device/counts_test.cpp counts them where kernels are launched and NCCL and CUDA are called.
TEST(DeviceForecast, CountsOfTheExecutor) {
  for (const int cards : {2, 4, 8}) {
    for (const double mib : {1.0, 25.0}) {
      EXPECT_EQ(forecast(nvlink(cards), DeviceWay::one_lane, mib).counts,
                (DeviceTimeline::Counts{6, 2, static_cast<std::uint64_t>(2 * (cards - 1)), 12}));
    }
  }
  EXPECT_EQ(forecast(infiniband(), DeviceWay::one_lane, 25).counts, (DeviceTimeline::Counts{6, 2, 126, 12}));
  EXPECT_EQ(forecast(nvlink(2), DeviceWay::one_lane, 25, DType::bf16).counts, (DeviceTimeline::Counts{10, 3, 4, 16}));
  DeviceBucket several = bucket_of(1);
  several.several = true;
  EXPECT_EQ(forecast_device(nvlink(8), DeviceWay::one_lane, several).counts, (DeviceTimeline::Counts{6, 2, 14, 12}));
  EXPECT_EQ(forecast_device(nvlink(8), DeviceWay::four_lanes, several).counts.kernels,
            forecast(nvlink(8), DeviceWay::four_lanes, 1).counts.kernels + 2);
  DeviceBucket kept = bucket_of(256);
  kept.feedback = true;
  const DeviceForecast fed = forecast_device(nvlink(8), DeviceWay::one_lane, kept);
  EXPECT_EQ(fed.counts, forecast(nvlink(8), DeviceWay::one_lane, 256).counts);
  EXPECT_GT(fed.compute_seconds, forecast(nvlink(8), DeviceWay::one_lane, 256).compute_seconds * 1.4);
}

// The figures of docs/explanation/device-collectives.md beside its table.
TEST(DeviceForecast, HalfSizedGradientsAndFeedbackGainLess) {
  EXPECT_NEAR(forecast(nvlink(8), DeviceWay::one_lane, 25, DType::bf16).ratio(), 1.08, 0.006);
  EXPECT_NEAR(forecast(nvlink(8), DeviceWay::one_lane, 256, DType::bf16).ratio(), 1.33, 0.03);
  EXPECT_LT(forecast(nvlink(2), DeviceWay::one_lane, 25, DType::bf16).ratio(), 1);
  EXPECT_LT(forecast(nvlink(2), DeviceWay::one_lane, 256, DType::bf16).ratio(), 1);
  DeviceBucket kept = bucket_of(25);
  kept.feedback = true;
  EXPECT_NEAR(forecast_device(nvlink(8), DeviceWay::one_lane, kept).ratio(), 1.45, 0.006);
}

// As the executor was counted when it launched a kernel for each frame.
TEST(DeviceForecast, FourLanesAreTheExecutorAsItWas) {
  struct Before {
    DeviceCluster cluster;
    double mib;
    std::uint64_t lanes, kernels, groups, sends;
    double us;
  };
  const Before table[] = {
      {nvlink(2), 1, 4, 26, 5, 8, 190},          {nvlink(2), 25, 4, 26, 5, 8, 193},
      {nvlink(2), 256, 9, 56, 10, 18, 453},      {nvlink(8), 1, 4, 98, 5, 56, 447},
      {nvlink(8), 25, 4, 98, 5, 56, 447},        {nvlink(8), 256, 4, 98, 5, 56, 570},
      {pcie(), 25, 4, 98, 5, 56, 779},           {pcie(), 256, 4, 98, 5, 56, 6137},
      {infiniband(), 1, 1, 194, 2, 126, 792},    {infiniband(), 25, 5, 962, 6, 630, 3522},
      {infiniband(), 256, 4, 770, 5, 504, 3621}, {ethernet_a_node(), 25, 5, 962, 6, 630, 9505},
  };
  for (const Before& row : table) {
    const DeviceForecast before = forecast(row.cluster, DeviceWay::four_lanes, row.mib);
    SCOPED_TRACE(std::to_string(row.cluster.ranks()) + " ranks, " + std::to_string(row.mib) + " MiB");
    EXPECT_EQ(before.lanes, row.lanes);
    EXPECT_EQ(before.counts.kernels, row.kernels);
    EXPECT_EQ(before.counts.groups, row.groups);
    EXPECT_EQ(before.counts.sends, row.sends);
    EXPECT_NEAR(us(before.seconds), row.us, 5 + 0.01 * row.us);
  }
}

// Mutations tried: the compute queue waits for the sum of the fresh lane, too (1.27); the lanes share a group (1.28).
TEST(DeviceForecast, TiersLoseOnlyWhereEachCardHasALinkOfItsOwn) {
  // A model that was computed apart cuts buckets into four lanes, whose links work at once.
  const std::pair<double, double> fast[] = {{25, 303}, {64, 487}, {100, 608}, {256, 1128}};
  const std::pair<double, double> slow[] = {{25, 1382}, {64, 3155}, {100, 4792}, {256, 11556}};
  for (const auto& [mib, wanted] : fast) {
    EXPECT_NEAR(us(forecast(infiniband(), DeviceWay::tiers, mib).seconds), wanted, 0.15 * wanted) << mib;
  }
  EXPECT_NEAR(forecast(infiniband(), DeviceWay::tiers, 256).ratio(), 1.35, 0.01);
  for (const auto& [mib, wanted] : slow) {
    const DeviceForecast tiers = forecast(ethernet_a_node(), DeviceWay::tiers, mib);
    EXPECT_NEAR(us(tiers.seconds), wanted, 0.04 * wanted) << mib;
    EXPECT_GT(tiers.ratio(), 3.7);
    EXPECT_LT(tiers.ratio(), 4.3);
  }
  EXPECT_NEAR(forecast(infiniband(), DeviceWay::tiers, 25).ratio(), 0.91, 0.02);
  EXPECT_EQ(forecast(infiniband(), DeviceWay::tiers, 25).counts.groups, 4U);
}

// A lane that exceeds the windows is one launch more, whose meetings take as long again. Mutation tried: lanes after
// the first are left out.
TEST(DeviceForecast, OneKernelInsideANode) {
  struct Launches {
    int cards;
    double mib;
    std::uint64_t kernels;
    double us;  // by the formula, without events and the kernels that end a step
  };
  const Launches table[] = {{8, 1, 1, 17},    {8, 4, 1, 23},    {8, 25, 1, 65},
                            {8, 256, 2, 534}, {4, 256, 4, 502}, {2, 256, 8, 438}};
  for (const Launches& row : table) {
    const DeviceForecast one = forecast(nvlink(row.cards), DeviceWay::fused, row.mib);
    SCOPED_TRACE(std::to_string(row.cards) + " cards, " + std::to_string(row.mib) + " MiB");
    EXPECT_EQ(one.counts, (DeviceTimeline::Counts{row.kernels + 2, 0, 0, 5}));
    EXPECT_EQ(one.lanes, row.kernels);
    EXPECT_NEAR(us(one.seconds), row.us + 8, 2);
  }
  // What others published of such a kernel with FP8 over 16-bit values on 8 cards: frames of half the bytes.
  const std::pair<double, double> published[] = {{8, 41}, {32, 150}, {128, 524}, {2048, 7220}};
  for (const auto& [mib, wanted] : published) {
    EXPECT_NEAR(us(fused_seconds(nvlink(8), mib * kMiBBytes / 2)), wanted, 0.15 * wanted) << mib;
  }
  DeviceBucket kept = bucket_of(25);
  kept.feedback = true;
  EXPECT_GT(forecast_device(nvlink(8), DeviceWay::fused, kept).seconds,
            forecast(nvlink(8), DeviceWay::fused, 25).seconds);
}

TEST(DeviceForecast, WhatOneKernelCannotMakeIsMadeInOneLane) {
  for (const char* codec : {"exact", "topk(1%)+int8"}) {
    const DeviceBucket bucket{.count = 1 << 20, .codec = CodecSpec::parse(codec)};
    const DeviceForecast lane = forecast_device(nvlink(8), DeviceWay::one_lane, bucket);
    EXPECT_EQ(forecast_device(nvlink(8), DeviceWay::fused, bucket).counts, lane.counts) << codec;
  }
}

TEST(DeviceForecast, WaysThatAClusterDoesNotAllowAreRefused) {
  EXPECT_EQ(device_ways(nvlink(8)).back(), DeviceWay::fused);
  EXPECT_EQ(device_ways(infiniband()).back(), DeviceWay::tiers);
  EXPECT_EQ(device_ways(ethernet()).back(), DeviceWay::one_lane);
  EXPECT_THROW((void)forecast(nvlink(8), DeviceWay::tiers, 1), Error);
  EXPECT_THROW((void)forecast(infiniband(), DeviceWay::fused, 1), Error);
  EXPECT_EQ(device_ways(node(32, 0, 1, 0, 1)).back(), DeviceWay::fused);
  EXPECT_EQ(device_ways(node(33, 0, 1, 0, 1)).back(), DeviceWay::one_lane) << "windows are for 32 ranks";
  EXPECT_THROW((void)forecast(nvlink(8), DeviceWay::one_lane, 0), Error);
  EXPECT_THROW((void)forecast(node(1, 0, 1, 0, 1), DeviceWay::nccl, 1), Error);
  EXPECT_THROW(
      (void)forecast_device(nvlink(2), DeviceWay::one_lane, {.count = 1, .codec = CodecSpec(std::uint8_t{99})}), Error);
}

TEST(DeviceForecast, QuickerPartsNeverMakeACallSlower) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto pick = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  for (int i = 0; i < 40; ++i) {
    DeviceCluster cluster = i % 2 == 0 ? infiniband() : nvlink(8);
    cluster.nodes = i % 2 == 0 ? 2 + static_cast<int>(random() % 4) : 1;
    cluster.cards = 2 + static_cast<int>(random() % 4);
    const double mib = std::exp(pick(std::log(0.1), std::log(64)));
    for (const DeviceWay way : device_ways(cluster)) {
      const double before = forecast(cluster, way, mib).seconds;
      DeviceCluster quicker = cluster;
      const double less = pick(0.3, 1);
      quicker.host = {3e-6 * less, 17.5e-6 * less, 0.3e-6 * less, 0.7e-6 * less};
      quicker.card.bytes_per_second /= less;
      quicker.inside.latency_seconds *= less;
      quicker.between.bytes_per_second /= less;
      EXPECT_LE(forecast(quicker, way, mib).seconds, before * (1 + 1e-9));
    }
  }
}

}  // namespace
}  // namespace gradwire::exchange
