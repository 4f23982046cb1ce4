// Tests the choice of codecs over recorded and made-up traces, without clocks or ranks.
#include "choice/auto_levels.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "choice/moving_median.hpp"

namespace gradwire::choice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One bucket is ready at once; the codecs use 4, 2, 1 and 0.5 bytes per element and encode a million elements in 4 ms.
StepForecast link_forecast(double bytes_per_second, double compute = 0.01) {
  constexpr double kElements = 1e6;
  const auto seconds = [&](double bytes, double codec) {
    return std::max(kElements * bytes / bytes_per_second, codec);
  };
  return {compute, {{compute, {seconds(4, 0.002), seconds(2, 0.003), seconds(1, 0.004), seconds(0.5, 0.008)}, 3}}};
}

TEST(AutoLevels, TakesWhatIsFastestAtTheStart) {
  const auto start = [](double rate) {
    AutoLevels auto_levels({});
    auto_levels.start(0, link_forecast(rate));
    return auto_levels.levels();
  };
  EXPECT_THAT(start(12.5e6), ElementsAre(3)) << "100 Mbit/s";
  EXPECT_THAT(start(125e6), ElementsAre(2)) << "1 Gbit/s: the codec of 4 bits takes longer than the link with 8";
  EXPECT_THAT(start(10e9), ElementsAre(0)) << "shared memory";
}

TEST(AutoLevels, MovesOneLevelAtATimeAfterADwell) {
  AutoLevels auto_levels({.dwell = 20});
  auto_levels.start(0, link_forecast(10e9));
  std::vector<std::uint64_t> steps;
  for (std::uint64_t step = 1; step < 200; ++step) {
    if (const auto change = auto_levels.update(step, link_forecast(12.5e6))) {
      EXPECT_EQ(change->to[0], change->from[0] + 1);
      EXPECT_EQ(change->step, step);
      EXPECT_THAT(change->reason, HasSubstr(" ms -> "));
      steps.push_back(step);
    }
  }
  EXPECT_THAT(steps, ElementsAre(20, 40, 60));
  EXPECT_THAT(auto_levels.levels(), ElementsAre(3));
}

TEST(AutoLevels, GainsBelowTheThresholdChangeNothing) {
  AutoLevels auto_levels({.gain = 0.05, .dwell = 0});
  StepForecast forecast{0.1, {{0.1, {0.050, 0.046}, 1}}};
  auto_levels.start(0, {0.1, {{0.1, {0.050, 0.060}, 1}}});
  EXPECT_FALSE(auto_levels.update(1, forecast)) << "4 of 150 ms";
  forecast.buckets[0].seconds[1] = 0.040;
  EXPECT_TRUE(auto_levels.update(2, forecast)) << "10 of 150 ms";
}

TEST(AutoLevels, HiddenCommunicationIsGivenQuality) {
  // 80 ms of the backward pass hide the first bucket, and nothing hides the last one.
  const StepForecast forecast{0.1, {{0.02, {0.04, 0.02, 0.01}, 2}, {0.1, {0.04, 0.02, 0.01}, 2}}};
  EXPECT_THAT(best_levels(forecast, 0.01), ElementsAre(0, 2));
  AutoLevels auto_levels({.dwell = 0});
  auto_levels.start(0, {0, {{0, {0.04, 0.02, 0.01}, 2}, {0, {0.04, 0.02, 0.01}, 2}}});
  EXPECT_THAT(auto_levels.levels(), ElementsAre(2, 2));
  const auto change = auto_levels.update(1, forecast);
  ASSERT_TRUE(change);
  EXPECT_THAT(change->to, ElementsAre(1, 2));
  EXPECT_THAT(change->reason, HasSubstr("better quality"));
}

TEST(AutoLevels, PassesOverALevelThatWouldMakeStepsLonger) {
  AutoLevels auto_levels({.dwell = 0});
  auto_levels.start(0, {0, {{0, {0.010, 0.020, 0.030}, 2}}});
  ASSERT_THAT(auto_levels.levels(), ElementsAre(0));
  const auto change = auto_levels.update(1, {0, {{0, {0.010, 0.020, 0.005}, 2}}});
  ASSERT_TRUE(change);
  EXPECT_THAT(change->to, ElementsAre(2));
}

TEST(AutoLevels, ALevelThatIsTakenAwayIsLeftAtOnce) {
  AutoLevels auto_levels({.dwell = 1000});
  StepForecast forecast = link_forecast(12.5e6);
  auto_levels.start(0, forecast);
  ASSERT_THAT(auto_levels.levels(), ElementsAre(3));
  forecast.buckets[0].most = 1;
  const auto change = auto_levels.update(1, forecast);
  ASSERT_TRUE(change);
  EXPECT_THAT(change->to, ElementsAre(1));
  EXPECT_EQ(change->reason, "quality");
}

struct Played {
  int switches = 0;
  double seconds = 0;
  double clairvoyant = 0;
};

// Plays 20,000 steps over a link that changes three times and is noisy by `sigma` every few steps.
Played play(AutoLevelsOptions options, std::size_t window, double sigma, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> noise(-sigma * sigma / 2, sigma);
  AutoLevels auto_levels(options);
  MovingMedian rates(window);
  Played played;
  constexpr int kSteps = 20000;
  double factor = 1;
  for (int step = 0; step < kSteps; ++step) {
    const std::array<double, 4> phases{12.5e6, 125e6, 31.25e6, 125e6};
    factor = step % 3 == 0 ? noise(random) : factor;
    const double rate = phases[static_cast<std::size_t>(step * 4 / kSteps)] * factor;
    const StepForecast truth = link_forecast(rate);
    if (step == 0) {
      auto_levels.start(0, truth);
    }
    played.seconds += step_seconds(truth, auto_levels.levels());
    played.clairvoyant += step_seconds(truth, best_levels(truth, 0));
    rates.add(rate);
    const auto change = auto_levels.update(static_cast<std::uint64_t>(step) + 1, link_forecast(rates.median()));
    played.switches += change ? 1 : 0;
  }
  return played;
}

TEST(AutoLevels, DoesNotFlapOverANoisyLink) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Played calm = play({}, 15, 0.3, seed);
  EXPECT_LE(calm.switches, 20) << "there are 20,000 steps, in half of which two levels tie";
  EXPECT_LE(calm.seconds, 1.05 * calm.clairvoyant);
  const Played greedy = play({.gain = 0, .tolerance = 0, .margin = 0, .dwell = 0}, 1, 0.3, seed);
  EXPECT_GT(greedy.switches, 100) << "the control shows why the window, the gain and the dwell are needed";
}

TEST(AutoLevels, OneSpikeChangesNothing) {
  AutoLevels auto_levels({});
  auto_levels.start(0, link_forecast(125e6));
  MovingMedian rates(15);
  for (std::uint64_t step = 1; step < 500; ++step) {
    rates.add(step % 50 == 0 ? 1e6 : 125e6);
    EXPECT_FALSE(auto_levels.update(step, link_forecast(rates.median()))) << step;
  }
}

TEST(MovingMedian, MedianOfTheLast) {
  MovingMedian window(3);
  EXPECT_EQ(window.median(), 0);
  window.add(5);
  window.add(1);
  EXPECT_EQ(window.median(), 1) << "the lower of two is the median";
  window.add(100);
  EXPECT_EQ(window.median(), 5);
  window.add(7);
  EXPECT_EQ(window.median(), 7) << "5 has left the window";
}

}  // namespace
}  // namespace gradwire::choice
