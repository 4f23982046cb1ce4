// Tests the cost model fitted to measured times.
#include "exchange/model/level_forecast.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace gradwire::exchange {
namespace {

Cluster cluster(double bytes_per_second) {
  return {.ranks = 4, .inter = {.latency_seconds = 50e-6, .bytes_per_second = bytes_per_second}};
}
const Way kInt8{.first = {1.02, 1e-10, 1e-10}, .second = {1.02, 1e-10, 1e-10}};

TEST(LevelForecast, GoesThroughWhatWasTimed) {
  const Cluster link = cluster(125e6);
  for (const double factor : {0.5, 1.0, 3.0}) {
    std::vector<Timing> timings;
    for (const double elements : {1024.0, 500'000.0}) {
      timings.push_back({elements, 300e-6 + factor * model_seconds(link, kInt8, elements)});
    }
    const Fit fitted = fit(link, kInt8, timings);
    EXPECT_NEAR(fitted.factor, factor, 1e-9);
    EXPECT_NEAR(fitted.overhead_seconds, 300e-6, 1e-9);
    const LevelForecast forecast(kInt8, fitted);
    EXPECT_NEAR(forecast.seconds(link, 500'000), timings[1].seconds, 1e-9);
    // The same code runs over a link of another speed.
    const Cluster slow = cluster(12.5e6);
    EXPECT_NEAR(forecast.seconds(slow, 1e6), 300e-6 + factor * model_seconds(slow, kInt8, 1e6), 1e-9);
  }
}

// A token bucket lets the first 32 KiB through at once. Mutation tried: there is no least factor.
TEST(LevelForecast, ABurstDoesNotPassForTheLink) {
  Cluster link = cluster(12.5e6);
  link.inter.seen_bytes = 128 << 10;
  const Way bf16{.first = {2, 1e-10, 1e-10}, .second = {2, 1e-10, 1e-10}};
  const std::vector<Timing> timings{{1024, 150e-6}, {16'000, 200e-6}};
  const double large = 1e6;
  const double as_int8 = LevelForecast(kInt8, fit(link, kInt8, timings)).seconds(link, large);
  const double as_bf16 = LevelForecast(bf16, fit(link, bf16, timings)).seconds(link, large);
  EXPECT_GT(as_int8, 0.85 * way_cost(link, kInt8, large).wire);
  EXPECT_NEAR(as_bf16 / as_int8, 2 / 1.02, 0.1);
}

// The exchange was disturbed, so the link looks four times as slow as it is. Mutation tried: the link's rate is kept.
TEST(LevelForecast, WhatMovedAsMuchAsTheExchangeStands) {
  Cluster memory = cluster(0.86e9);
  memory.inter.seen_bytes = 1 << 20;
  const Way dense{.first = {4, 1e-11, 1e-11}, .second = {4, 1e-11, 1e-11}};
  const std::vector<Timing> timings{{1024, 10e-6}, {645'000, 710e-6}};
  EXPECT_NEAR(LevelForecast(dense, fit(memory, dense, timings)).seconds(memory, 645'000), 710e-6, 1e-6);
}

// The link is memory. Measured times count there, since codecs take most of the time.
TEST(LevelForecast, WhereTheLinkIsFastTimingsStand) {
  const Cluster memory = cluster(100e9);
  const Way slow{.first = {1.02, 1e-9, 1e-9}, .second = {1.02, 1e-9, 1e-9}};
  std::vector<Timing> timings;
  for (const double elements : {1024.0, 500'000.0}) {
    timings.push_back({elements, 5e-6 + 0.3 * model_seconds(memory, slow, elements)});
  }
  EXPECT_NEAR(fit(memory, slow, timings).factor, 0.3, 1e-9);
}

// The times of small reductions differ only by noise. Mutation tried: the model's latency, here 40 times as long, is
// kept.
TEST(LevelForecast, WhereElementsCostNothingTheirTimeIsTheOverhead) {
  const Cluster link = cluster(125e6);
  const std::vector<Timing> timings{{64, 2.1e-6}, {256, 2e-6}};
  EXPECT_NEAR(LevelForecast(kInt8, fit(link, kInt8, timings)).seconds(link, 256), 2e-6, 1.5e-6);
}

TEST(LevelForecast, WithoutUsefulTimingsTheModelStands) {
  const Cluster link = cluster(125e6);
  const double latency = two_shot_cost(link, 0, kInt8.first, kInt8.second).latency;
  for (const std::vector<Timing>& timings :
       {std::vector<Timing>{}, {{1024, 2e-3}, {500'000, 1e-3}}, {{1024, 1e-3}, {1024, 1e-3}}}) {
    const Fit fitted = fit(link, kInt8, timings);
    EXPECT_EQ(fitted.factor, 1);
    EXPECT_NEAR(fitted.overhead_seconds, latency, 1e-12);
  }
}

// The small reduction was disturbed. Mutation tried: the model's latency is kept, which was measured under the same
// load.
TEST(LevelForecast, WhatWasQuickOnceIsNotForecastSlow) {
  const Cluster link = cluster(12.5e9);
  const std::vector<Timing> timings{{64, 182e-6}, {256, 3.2e-6}};
  EXPECT_LT(LevelForecast(kInt8, fit(link, kInt8, timings)).seconds(link, 256), 4e-6);
}

TEST(LevelForecast, CorrectionsGoHalfWayAndStayNearTheModel) {
  LevelForecast forecast(kInt8, {.overhead_seconds = 0, .factor = 1});
  forecast.correct(4);
  EXPECT_NEAR(forecast.fitted().factor, 2, 1e-12);
  forecast.correct(1e9);
  EXPECT_NEAR(forecast.fitted().factor, 4, 1e-12) << "one outlier counts as 4";
  for (int i = 0; i < 50; ++i) {
    forecast.correct(100);
  }
  EXPECT_EQ(forecast.fitted().factor, 20);
  for (const double nothing : {0.0, -1.0, 0.0 / 1e-300 / 0.0}) {
    forecast.correct(nothing);
  }
  EXPECT_EQ(forecast.fitted().factor, 20);
}

TEST(LevelForecast, NativeIsARing) {
  Way native = kInt8;
  native.native = true;
  native.first.bytes = 4;
  const Cluster link = cluster(125e6);
  EXPECT_NEAR(model_seconds(link, native, 1e6), dense_cost(link, 1e6, 4).wire, 1e-12);
}

}  // namespace
}  // namespace gradwire::exchange
