// Tests clocks that are made up, so that the offset of each is known.
#include "watch/timeline/clock_fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace gradwire::watch::timeline {
namespace {

struct MadeUpClock {
  std::int64_t ahead = 0;
  double drift = 0;  // ns per ns
  [[nodiscard]] std::int64_t at(std::int64_t time) const {
    return time + ahead + static_cast<std::int64_t>(drift * static_cast<double>(time));
  }
};

// Makes messages in both directions between neighbours in a row of clocks.
std::vector<Exchange> row_of_messages(const std::vector<MadeUpClock>& clocks, std::int64_t seconds, std::uint64_t seed,
                                      std::int64_t least = 20'000) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> more(1.0 / 50'000);
  std::vector<Exchange> exchanges;
  for (std::int64_t time = 0; time < seconds * 1'000'000'000; time += 5'000'000) {
    for (std::size_t i = 1; i < clocks.size(); ++i) {
      for (const bool there : {true, false}) {
        const std::size_t from = there ? i - 1 : i;
        const std::size_t to = there ? i : i - 1;
        const auto took = least + static_cast<std::int64_t>(more(random));
        exchanges.push_back(
            {static_cast<int>(from), static_cast<int>(to), clocks[from].at(time), clocks[to].at(time + took)});
      }
    }
  }
  return exchanges;
}

TEST(Clocks, AreFoundWithinTheErrorThatIsToldOnTwentySeeds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    std::uniform_int_distribution<std::int64_t> ahead(-1'000'000'000'000, 1'000'000'000'000);
    std::vector<MadeUpClock> clocks{{0}, {ahead(random)}, {ahead(random)}, {ahead(random)}};
    const auto fits = fit_clocks(std::vector<std::int64_t>(4, 0), row_of_messages(clocks, 1, seed));
    for (std::size_t i = 0; i < clocks.size(); ++i) {
      EXPECT_TRUE(fits[i].known);
      const std::int64_t wrong = std::abs(fits[i].common(clocks[i].at(500'000'000)) - 500'000'000);
      EXPECT_LE(wrong, fits[i].error + 1) << "clock " << i << ", seed " << seed;
      // Messages take at least 20 us, and quick ones not much longer; errors add up along the row.
      EXPECT_GE(fits[i].error, static_cast<std::int64_t>(i) * 20'000);
      EXPECT_LE(fits[i].error, static_cast<std::int64_t>(i) * 24'000) << "clock " << i << ", seed " << seed;
    }
  }
}

TEST(Clocks, AWayOfQuickPairsIsTakenBeforeASlowDirectOne) {
  const std::vector<MadeUpClock> clocks{{0}, {7'000'000}, {-3'000'000}};
  auto exchanges = row_of_messages(clocks, 1, 3, 1'000);
  for (int i = 0; i < 100; ++i) {  // from 0 to 2 in 5 ms, and back in 1 ms: the middle is 2 ms off
    const std::int64_t time = i * 10'000'000;
    exchanges.push_back({0, 2, clocks[0].at(time), clocks[2].at(time + 5'000'000)});
    exchanges.push_back({2, 0, clocks[2].at(time), clocks[0].at(time + 1'000'000)});
  }
  const auto fits = fit_clocks(std::vector<std::int64_t>(3, 0), exchanges);
  EXPECT_LT(fits[2].error, 20'000);
  EXPECT_NEAR(static_cast<double>(fits[2].common(clocks[2].at(1'000))), 1'000, 20'000);
}

TEST(Clocks, ThatDriftAreFollowed) {
  const std::vector<MadeUpClock> clocks{{0}, {1'000'000'000, 20e-6}};  // 20 us per second, 600 us in total
  const auto fits = fit_clocks(std::vector<std::int64_t>(2, 0), row_of_messages(clocks, 30, 5));
  for (std::int64_t second = 2; second < 28; second += 5) {
    const std::int64_t time = second * 1'000'000'000;
    EXPECT_NEAR(static_cast<double>(fits[1].common(clocks[1].at(time)) - time), 0, 45'000) << second;
  }
  EXPECT_LE(fits[1].error, 30'000);
  std::int64_t before = -1'000'000;
  for (std::int64_t time = 0; time < 32'000'000'000; time += 10'000'000) {
    EXPECT_GE(fits[1].common(clocks[1].at(time)), before) << "no time goes back";
    before = fits[1].common(clocks[1].at(time));
  }
}

TEST(Clocks, ThatNoMessageReachesBothWaysAreReadByTheirDates) {
  const std::vector<std::int64_t> dates{1'000, 400};
  const std::vector<Exchange> one_way{{0, 1, 5'000, 9'000}};
  const auto fits = fit_clocks(dates, one_way);
  EXPECT_FALSE(fits[1].known);
  EXPECT_EQ(fits[1].common(2'000) + dates[0], 2'000 + dates[1]) << "the same date";
  EXPECT_TRUE(fits[0].known);
  EXPECT_EQ(fits[0].common(2'000), 2'000);
  EXPECT_TRUE(fit_clocks({}, {}).empty());
}

TEST(Clocks, ThatAreFarApartStayWithinWhatCanBeCounted) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 62) - 1;
  const std::vector<std::int64_t> dates{kFar, -kFar, kFar};
  const std::vector<Exchange> exchanges{
      {0, 1, -kFar, kFar}, {1, 0, -kFar, kFar}, {1, 2, -kFar, kFar}, {2, 1, kFar, -kFar}};
  for (const ClockFit& fit : fit_clocks(dates, exchanges)) {
    for (const std::int64_t time : {-kFar, std::int64_t{0}, kFar}) {
      EXPECT_LE(std::abs(fit.common(time)), kFar);
    }
    EXPECT_GE(fit.error, 0);
    EXPECT_LE(fit.error, kFar);
  }
}

}  // namespace
}  // namespace gradwire::watch::timeline
