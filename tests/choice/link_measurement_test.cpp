// Tests how exchanges over made-up links are evaluated, without clocks or ranks.
#include "choice/link_measurement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace gradwire::choice {
namespace {

struct MadeUpLink {
  double latency = 30e-6;
  double bytes_per_second = 125e6;
  double burst = 0;  // bytes that an idle link lets through at once
  double noise = 0;  // largest share of an exchange
  std::uint64_t sent = 0;
  int exchanges = 0;
  std::mt19937 random{7};

  TimeExchanges timer() {
    return [this](int rounds, std::uint64_t bytes) {
      double quickest = 1e9;
      for (int round = 0; round < rounds; ++round) {
        ++exchanges;
        sent += bytes;
        const double seconds = latency + std::max(0.0, static_cast<double>(bytes) - burst) / bytes_per_second;
        quickest = std::min(quickest, seconds * (1 + noise * (random() % 1000) / 1000));
      }
      return quickest;
    };
  }
};

TEST(LinkMeasurement, FindsLatencyAndRateOfAQuietLink) {
  for (const double rate : {1e6, 12.5e6, 125e6, 1.25e9, 5e9}) {
    for (const double latency : {2e-6, 30e-6, 1e-3, 30e-3}) {
      if (8e6 / rate < latency) {
        continue;  // the time of 8 MiB is too short against the latency
      }
      MadeUpLink link{.latency = latency, .bytes_per_second = rate};
      for (const bool within : {false, true}) {
        const exchange::LinkCost found = measure_link(link.timer(), within);
        EXPECT_EQ(found.latency_seconds, latency + 1 / rate);
        EXPECT_NEAR(found.bytes_per_second / rate, 1, 1e-3) << rate << ", " << latency;
        EXPECT_EQ(found.seen_bytes == 1, within);
      }
    }
  }
}

TEST(LinkMeasurement, WhatABurstLetsThroughIsNoRate) {
  MadeUpLink link{.bytes_per_second = 12.5e6, .burst = 32 << 10};
  EXPECT_NEAR(measure_link(link.timer()).bytes_per_second, 12.5e6, 0.02e6);
}

TEST(LinkMeasurement, EndsOnceTheLinkIsSeen) {
  MadeUpLink slow{.bytes_per_second = 1e6};
  (void)measure_link(slow.timer());
  EXPECT_EQ(slow.exchanges, 9 + 4) << "16 KiB take 16 ms: long enough, and once more";
  MadeUpLink quick{.latency = 1e-6, .bytes_per_second = 50e9};
  (void)measure_link(quick.timer());
  EXPECT_EQ(quick.exchanges, 9 + 10 * 2) << "up to 8 MiB";
}

// The figures are from before `gradwire doctor` used this measurement, too.
TEST(LinkMeasurement, MakesOfNoiseWhatItMadeBefore) {
  struct Noisy {
    MadeUpLink link;
    bool within;
    double latency;
    double rate;
    double seen;
  };
  const std::vector<Noisy> rows = {
      {{.latency = 3e-05, .bytes_per_second = 1.25e+08, .burst = 0, .noise = 0.3},
       false,
       3.25196696e-05,
       106892660,
       524288},
      {{.latency = 3e-05, .bytes_per_second = 1.25e+08, .burst = 0, .noise = 0.3}, true, 3.25196696e-05, 108139835, 1},
      {{.latency = 3e-05, .bytes_per_second = 1.25e+07, .burst = 32768, .noise = 0.3},
       false,
       3.2511e-05,
       10590637.9,
       131072},
      {{.latency = 3e-05, .bytes_per_second = 1.25e+07, .burst = 32768, .noise = 0.3}, true, 3.2511e-05, 14596568.6, 1},
      {{.latency = 2e-06, .bytes_per_second = 2e+09, .burst = 0, .noise = 0.5},
       false,
       2.27956975e-06,
       1.88064731e+09,
       8388608},
      {{.latency = 2e-06, .bytes_per_second = 2e+09, .burst = 0, .noise = 0.5},
       true,
       2.27956975e-06,
       1.88064731e+09,
       1},
      {{.latency = 2e-06, .bytes_per_second = 8e+09, .burst = 0, .noise = 2},
       false,
       3.11619475e-06,
       6.38253748e+09,
       8388608},
      {{.latency = 2e-06, .bytes_per_second = 8e+09, .burst = 0, .noise = 2}, true, 3.11619475e-06, 6.38253748e+09, 1},
      {{.latency = 0.02, .bytes_per_second = 5e+06, .burst = 0, .noise = 0.2}, false, 0.0211162112, 4122815.45, 65536},
      {{.latency = 0.02, .bytes_per_second = 5e+06, .burst = 0, .noise = 0.2}, true, 0.0211162112, 4880605.78, 1},
      {{.latency = 5e-05, .bytes_per_second = 1.25e+09, .burst = 1e+06, .noise = 0.1},
       false,
       5.1395e-05,
       1.25756201e+09,
       8388608},
      {{.latency = 5e-05, .bytes_per_second = 1.25e+09, .burst = 1e+06, .noise = 0.1},
       true,
       5.1395e-05,
       1.40155976e+09,
       1},
  };
  for (const Noisy& row : rows) {
    MadeUpLink link = row.link;
    const exchange::LinkCost found = measure_link(link.timer(), row.within);
    EXPECT_NEAR(found.latency_seconds / row.latency, 1, 1e-6);
    EXPECT_NEAR(found.bytes_per_second / row.rate, 1, 1e-6);
    EXPECT_EQ(found.seen_bytes, row.seen);
  }
}

TEST(LinkMeasurement, NeighboursAreThoseOfTheirTier) {
  EXPECT_EQ(neighbours_in_ring(4, 3).to, 0);
  EXPECT_EQ(neighbours_in_ring(4, 0).from, 3);
  const exchange::Tiers tiers = exchange::Tiers::in_rows(2, 6);
  EXPECT_EQ(neighbours_inside(tiers, 2).to, 3);
  EXPECT_EQ(neighbours_between(tiers, 5).to, 1);
  EXPECT_EQ(neighbours_between(tiers, 1).from, 5);
}

}  // namespace
}  // namespace gradwire::choice
