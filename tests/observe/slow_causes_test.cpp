// Tests that planted causes are named. They take seconds and need cores to themselves, so these are systems tests.
#include "gradwire/emulation.hpp"
#include "slow_session.hpp"

namespace gradwire::test {
namespace {

TEST(SlowCauses, LateComputeIsNamed) { expect_only(run(late(kRanks, kSlow)), "rank 2", "late compute"); }

TEST(SlowCauses, LateComputeIsNamedWhereSumsHaveNoFrames) {
  Job job = late(kRanks, kSlow);
  job.elements = 100;
  job.policy = Policy::uniform("exact", Algorithm::dense);
  expect_only(run(job), "rank 2", "late compute");
}

// In this case all ranks meet before the first bucket.
TEST(SlowCauses, LateComputeIsNamedWhereRanksLookForNanFirst) {
  Job job = late(kRanks, kSlow);
  job.options.nonfinite = Nonfinite::skip;
  expect_only(run(job), "rank 2", "late compute");
}

TEST(SlowCauses, ALinkOfAFifthIsNamed) {
  const auto named = run({.steps = 70, .link = [](std::shared_ptr<Transport> inner) {
                            const bool slow = inner->rank() == kSlow;
                            return make_emulated(std::move(inner), slow ? "40Mbit/s" : "200Mbit/s");
                          }});
  expect_only(named, "rank 2", "slow link");
}

TEST(SlowCauses, ARankThatIsWellAgainIsToldSo) {
  Job job = late(kRanks, kSlow);
  job.steps = 400;
  job.compute = [](int rank, int step) { return milliseconds(rank == kSlow && step < 60 ? 35 : 15); };
  const auto named = run(job);
  ASSERT_EQ(named.size(), 2U) << joined(named);
  EXPECT_NE(named[1].find("rank 2 is well again"), std::string::npos) << named[1];
}

TEST(SlowCauses, ARankThatDidNothingForLongWasPaused) {
  Job job;
  job.steps = 250;  // if cores are scarce, a comparison takes long, and the next one comes later
  job.compute = [](int rank, int step) { return milliseconds(rank == kSlow && step == 20 ? 2000 : 15); };
  const auto named = run(job);
  ASSERT_EQ(named.size(), 2U) << joined(named);
  EXPECT_NE(named[0].find("rank 2 is slow"), std::string::npos) << named[0];
  EXPECT_NE(named[0].find("paused: it did nothing for"), std::string::npos) << named[0];
  EXPECT_NE(named[1].find("rank 2 is well again"), std::string::npos) << named[1];
}

TEST(SlowCauses, TheShareIsThatOfTheEnvironment) {
  const Environment share("0.9");
  EXPECT_EQ(joined(run(late(kRanks, kSlow))), "");
}

}  // namespace
}  // namespace gradwire::test
