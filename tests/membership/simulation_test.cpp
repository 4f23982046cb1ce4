// Plays seeded faults in simulated time: whatever happens, one world remains, with one result of each step.
#include "tests/membership/simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/membership/kinds_of_faults.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::membership {
namespace {

// Returns how many seeds each kind of fault gets: GRADWIRE_SEEDS, or `otherwise` if it is not set.
int seeds(int otherwise) {
  const char* text = std::getenv("GRADWIRE_SEEDS");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? otherwise : std::atoi(text);
}

class Simulated : public ::testing::TestWithParam<KindOfFaults> {};

TEST_P(Simulated, OneWorldIsLeftAndOneResultOfEachStep) {
  const KindOfFaults& kind = GetParam();
  int failures = 0;
  std::size_t changes = 0;
  std::size_t taken_in = 0, confirmed = 0, left_out = 0, gave_up = 0;
  int longest = 0;
  std::uint64_t least_steps = ~0ULL;
  for (int seed = 1; seed <= seeds(1 + kind.seeds / test::kStepShare) && failures < 5; ++seed) {
    Simulation simulation(static_cast<unsigned>(seed), kind.faults(seed));
    const std::string wrong = simulation.run();
    failures += wrong.empty() ? 0 : 1;
    EXPECT_EQ(wrong, "") << kind.name << ", seed " << seed;
    changes += simulation.changes();
    taken_in += simulation.taken_in();
    confirmed += simulation.confirmed();
    left_out += simulation.left_out();
    gave_up += simulation.gave_up();
    longest = std::max(longest, simulation.longest_stop());
    least_steps = std::min(least_steps, simulation.steps());
  }
  std::printf(
      "%s: %zu changes of a world, %zu taken in, %zu left out, %zu gave up, %zu confirmed, the longest agreement took "
      "%d ms, at least %llu steps\n",
      kind.name, changes, taken_in, left_out, gave_up, confirmed, longest,
      static_cast<unsigned long long>(least_steps));
}

INSTANTIATE_TEST_SUITE_P(Membership, Simulated, ::testing::ValuesIn(kKindsOfFaults), [](const auto& kind) {
  std::string name = kind.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalpha(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace gradwire::membership
