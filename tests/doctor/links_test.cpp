// Tests links that are slower than similar ones.
#include <gmock/gmock.h>

#include "doctor/cluster.hpp"

namespace gradwire::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DoctorLinks, AHostThatIsThrottledIsNamedAndNotItsPairs) {
  Cluster cluster(4, 2);
  cluster.slow_host(2, 0.2, true, true);
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].level, Severity::problem);
  EXPECT_THAT(found[0].seen, HasSubstr("host2 sends at 200Mbit/s at best and receives at 200Mbit/s at best"));
  EXPECT_THAT(found[0].ranks, ElementsAre(4, 5));
}

TEST(DoctorLinks, OneHostOfThreeHasMostLinksButIsNotTheUsual) {
  Cluster cluster(3, 1);
  cluster.slow_host(0, 0.2, true, true);
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].level, Severity::problem);
  EXPECT_THAT(found[0].ranks, ElementsAre(0));
}

TEST(DoctorLinks, OneDirectionOfAHost) {
  Cluster cluster(4, 1);
  cluster.slow_host(1, 0.4, true, false);
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].level, Severity::warning) << "the rate is between a quarter and a half";
  EXPECT_THAT(found[0].seen, HasSubstr("host1 sends at "));
  EXPECT_THAT(found[0].seen, Not(HasSubstr("receives")));
}

TEST(DoctorLinks, OnePairOfHosts) {
  Cluster cluster(4, 1);
  cluster.pairs.rates[1][3] = kGigabit / 10;
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].level, Severity::problem);
  EXPECT_THAT(found[0].seen, HasSubstr("host1 to host3 gives 100Mbit/s, where others give "));
}

TEST(DoctorLinks, OneDirectionBetweenTwoHosts) {
  Cluster cluster(2, 2);
  cluster.slow_host(0, 0.2, true, false);
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].seen, HasSubstr("host0 to host1 gives 196Mbit/s, and back 980Mbit/s"));
  EXPECT_EQ(found[0].level, Severity::problem);
}

TEST(DoctorLinks, ManyPairsAreOneFinding) {
  Cluster cluster(16, 1);
  for (std::size_t i = 0; i < 12; ++i) {
    cluster.pairs.rates[i][i + 1] = kGigabit / (10 + static_cast<double>(i));
  }
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].seen, HasSubstr("12 links give less than half of the usual "));
  EXPECT_THAT(found[0].seen, HasSubstr("the slowest: host11 to host12 47.6Mbit/s, host10 to host11 50Mbit/s"));
}

TEST(DoctorLinks, ARankThatIsSlowerThanItsNeighbour) {
  Cluster cluster(2, 2);
  cluster.pairs.rates[1][2] = cluster.pairs.rates[1][3] = kGigabit / 4;
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].ranks, ElementsAre(1));
  EXPECT_THAT(found[0].seen, HasSubstr("where another rank of its host gives"));
}

TEST(DoctorLinks, InsideAHost) {
  Cluster cluster(1, 4);
  for (std::size_t other = 0; other < 3; ++other) {
    cluster.pairs.rates[3][other] = cluster.pairs.rates[other][3] = kInside / 5;
  }
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].level, Severity::warning) << "this is memory, which other programs disturb";
  EXPECT_THAT(found[0].ranks, ElementsAre(3));
  EXPECT_THAT(found[0].seen, HasSubstr("rank 3 sends at 8Gbit/s at best"));
}

TEST(DoctorLinks, AHostWhoseMemoryIsSlow) {
  Cluster cluster(3, 2);
  cluster.pairs.rates[4][5] = cluster.pairs.rates[5][4] = kInside / 5;
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].seen, HasSubstr("ranks of host2 give each other 8Gbit/s"));
}

TEST(DoctorLinks, AFarHostIsANote) {
  Cluster cluster(4, 1);
  cluster.pairs.latencies[0][3] = cluster.pairs.latencies[3][0] = 400e-6;
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].level, Severity::note);
  EXPECT_THAT(found[0].ranks, ElementsAre(0, 3));
}

TEST(DoctorLinks, BuffersThatDoNotHoldWhatIsUnderWay) {
  Cluster cluster(2, 1);
  cluster.pairs.latencies[0][1] = cluster.pairs.latencies[1][0] = 10e-3;  // 2.5 MB in both directions
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].subject, "TCP buffers");
  EXPECT_THAT(found[0].advice, HasSubstr("tcp_rmem='4096 131072 10485760'"));
}

TEST(DoctorLinks, AnInterfaceThatIsFasterThanAnyLink) {
  Cluster cluster(2, 1);
  cluster.facts[0].interfaces.push_back({.name = "ib0", .mtu = 9000, .megabits = 10000, .physical = true});
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].level, Severity::note);
  EXPECT_THAT(found[0].advice, HasSubstr("btl_tcp_if_include ib0"));
}

}  // namespace
}  // namespace gradwire::doctor
