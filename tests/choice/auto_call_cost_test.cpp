// Tests the cost of choosing between passing a call on and compressing it, with recorded durations and invented ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/choice/auto_call_world.hpp"

namespace gradwire::choice {
namespace {

// The bound holds for any noise in single calls.
TEST(AutoCall, AFirstComparisonMakesAtMostElevenCallsTwice) {
  std::uint64_t most = 0;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    std::lognormal_distribution<double> noise(0, 1);
    World world(2, [&](std::uint64_t, Way, int) { return 1e-3 * noise(random); });
    do {
      world.call();
    } while (!world.decided());
    EXPECT_LE(world.trials(), 11U) << "seed " << seed;
    most = std::max(most, world.trials());
  }
  EXPECT_EQ(most, 11U);
}

TEST(AutoCall, ComparisonsCostLittle) {
  for (const double passed : {1.4e-6, 15e-6, 0.7e-3, 30e-3}) {
    for (const double times : {1.05, 1.5, 14.0}) {
      World world(2, steady(passed, passed * times));
      for (int call = 0; call < 80; ++call) {
        world.call();
      }
      const double decided = world.seconds();
      const std::uint64_t first = world.trials();
      constexpr int kCalls = 200'000;
      for (int call = 0; call < kCalls; ++call) {
        world.call();
      }
      const double cost = (world.seconds() - decided) / (kCalls * passed) - 1;
      EXPECT_LE(cost, 0.005) << passed << " s, " << times << " times";
      EXPECT_GT(world.trials(), first) << "it is compared again now and then: " << passed << " s, " << times
                                       << " times";
    }
  }
}

TEST(AutoCall, ShortCallsThatPassAreSeldomAskedFor) {
  World world(2, steady(1.4e-6, 20e-6));
  for (int call = 0; call < 80; ++call) {
    world.call(4096);
  }
  const std::uint64_t before = world.asked();
  for (int call = 0; call < 64'000; ++call) {
    world.call(4096);
  }
  EXPECT_NEAR(static_cast<double>(world.asked() - before), 1000, 50);
}

// The traces hold the microseconds of one call each way on the slowest rank, where two ranks (`shm2`), four ranks on
// two cores (`shm4`) and two hosts at 1 Gbit/s (`lab`) made them by turns: MPI_Allreduce, and int8.
class AutoCallTrace : public testing::TestWithParam<std::string> {};

TEST_P(AutoCallTrace, CostsLittleMoreThanTheBestWay) {
  std::vector<std::array<double, 2>> trace;
  std::ifstream file(std::string(GRADWIRE_SOURCE_DIR) + "/tests/choice/traces/" + GetParam() + ".txt");
  for (std::array<double, 2> row{}; file >> row[0] >> row[1];) {
    trace.push_back({row[0] * 1e-6, row[1] * 1e-6});
  }
  ASSERT_EQ(trace.size(), 200U);
  constexpr std::uint64_t kRounds = 100;
  std::array<double, 2> fixed{};
  for (const auto& row : trace) {
    fixed[0] += kRounds * row[0];
    fixed[1] += kRounds * row[1];
  }
  // Compression must save 5% to be chosen.
  const double best = std::max(fixed[1], 0.95 * fixed[0]);
  for (const std::uint64_t start : {0U, 23U, 61U, 97U, 139U, 181U}) {
    World world(2, [&](std::uint64_t call, Way way, int) { return trace[(start + call) % trace.size()][way]; });
    for (int call = 0; call < 80; ++call) {
      world.call();
    }
    EXPECT_TRUE(world.decided());
    const double decided = world.seconds();
    for (std::uint64_t call = 0; call < kRounds * trace.size(); ++call) {
      world.call();
    }
    // A trial costs a whole call, so a choice that rests on a short phase of the machine stays for longer: in one of
    // the traces int8 is faster in 105 of 200 calls, and yet takes 8% longer in total.
    const double most = GetParam() == "shm2-4194304" ? 1.03 : 1.005;
    EXPECT_LE((world.seconds() - decided) / std::min(fixed[0], best), most) << "from row " << start;
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, AutoCallTrace,
                         testing::Values("lab-16384", "lab-65536", "lab-1048576", "shm2-16384", "shm2-131072",
                                         "shm2-1048576", "shm2-4194304", "shm2-16777216", "shm4-262144"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace gradwire::choice
