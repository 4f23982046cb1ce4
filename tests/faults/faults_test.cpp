// MPI processes end in every way at random times. GRADWIRE_FAULTS=500 plays this many jobs, from GRADWIRE_SEED on. No
// job hangs, the surviving ranks hold the same bits, and each names the ended rank. `fault_matrix` makes a table of
// more jobs. Mutations tried: commit() always returns true (seed 2); the name of an ended process is left out (seed 8);
// nobody reports a process that ended before the first world (seed 3).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/faults/fault_cases.hpp"

namespace gradwire::test {
namespace {

int environment_int(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// If the number of ends plus one is a multiple of the number of modes, a draw by the sum of both pairs each end with
// one mode only.
TEST(Faults, EveryEndMeetsEveryModeAndCodec) {
  std::set<std::tuple<std::size_t, std::size_t, std::size_t>> met;
  for (int seed = 1; seed <= 192; ++seed) {
    const FaultCase drawn = draw_case(seed);
    met.emplace(drawn.end, drawn.mode, drawn.codec);
  }
  EXPECT_EQ(met.size(), std::size(kEnds) * std::size(kModes) * std::size(kCodecs));
}

TEST(Faults, TheOthersGoOn) {
  if (!others_may_live()) {
    GTEST_SKIP() << "this launcher ends the job when a rank ends";
  }
  std::map<std::string, int> stages;
  double worst = 0;
  int struck = 0;
  const int jobs = environment_int("GRADWIRE_FAULTS", 20);
  play_all(environment_int("GRADWIRE_SEED", 1), jobs, 2, [&](const FaultCase& drawn, const FaultVerdict& verdict) {
    EXPECT_EQ(verdict.wrong(), "") << "seed " << drawn.seed << ": " << drawn.to_text();
    struck += verdict.struck() ? 1 : 0;
    for (const std::string& stage : verdict.stages) {
      ++stages[stage];
    }
    worst = std::isnan(verdict.back) ? worst : std::max(worst, verdict.back);
  });
  for (const auto& [stage, count] : stages) {
    std::cout << count << " in " << stage << "; ";
  }
  std::cout << "all back in training after at most " << worst << " s\n";
  EXPECT_GE(4 * struck, 3 * jobs) << "in the other jobs no process ended";
}

TEST(Faults, ASpareThatIsNotNeededEndsWithTheJob) {
  if (!others_may_live()) {
    GTEST_SKIP() << "this launcher ends the job when a rank ends";
  }
  const std::string output = play_calm(1);
  EXPECT_NE(output.find("unused 2"), std::string::npos) << output;
  EXPECT_NE(output.find("survivor 1 world 2"), std::string::npos) << output;
}

}  // namespace
}  // namespace gradwire::test
