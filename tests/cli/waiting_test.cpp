// Tests that top and report name as slow the ranks for which others wait, and that foreign files cannot write control
// codes to a terminal.
#include "observe/late_ranks.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "base/median.hpp"
#include "base/text.hpp"
#include "watch/live/view.hpp"
#include "watch/page/summary.hpp"

namespace gradwire::cli {
namespace {

namespace live = watch::live;
namespace page = watch::page;

using ::testing::ElementsAre;

std::vector<observe::WaitedFor> judged(const std::vector<double>& exposed) {
  std::vector<observe::RankFromOutside> ranks;
  for (const double each : exposed) {
    ranks.push_back({.exposed = each});
  }
  return observe::waited_for(ranks);
}

std::vector<bool> slow_of(const std::vector<double>& exposed) {
  std::vector<bool> slow;
  for (const observe::WaitedFor& each : judged(exposed)) {
    slow.push_back(each.is_slow);
  }
  return slow;
}

TEST(Waiting, TheMedianOfTheOthersCounts) {
  const auto waits = judged({0.1, 0.4, 0.6, std::nan("")});
  EXPECT_NEAR(waits[0].share, 0.4, 1e-9);
  EXPECT_NEAR(waits[1].share, -0.05, 1e-9);
  EXPECT_NEAR(waits[2].share, -0.35, 1e-9);
  EXPECT_EQ(waits[3].share, 0);
  EXPECT_THAT(slow_of({0.1, 0.4, 0.6}), ElementsAre(true, false, false));
  EXPECT_THAT(slow_of({0.1, 0.1, 0.5}), ElementsAre(false, false, false)) << "most of the ranks are not slow";
  EXPECT_THAT(slow_of({0.1}), ElementsAre(false));
  EXPECT_THAT(slow_of({0.1, 0.3}), ElementsAre(true, false));
}

TEST(Waiting, TopAndReportNameTheSameRanksOnAHundredSeeds) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::vector<live::RankRow> rows(2 + seed % 7);
    page::Summary summary;
    summary.has_steps = true;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      const double exposed = std::uniform_real_distribution<>(0, 0.5)(random);
      rows[rank].rates.exposed = exposed;
      summary.ranks.push_back({.rank = static_cast<int>(rank), .host = {}, .state = {}, .split = {}, .cause = {}});
      summary.ranks.back().exposed_share = exposed;
    }
    live::mark_slow(rows);
    page::find_slow_ranks(summary);
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      EXPECT_EQ(rows[rank].state == live::RankState::slow, summary.ranks[rank].is_slow()) << seed << ' ' << rank;
    }
  }
}

TEST(Median, OfAnEvenNumberIsBetweenTheMiddleTwo) {
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({std::nan(""), 7}), 7);
  EXPECT_EQ(median({}), 0);
}

TEST(Text, OfOthersHasNoEscapes) {
  EXPECT_EQ(text::printable("a\x1b[2J\xc2\x9b\xff\xc3\xa9\n\x7f"), "a?[2J??\xc3\xa9??");
  EXPECT_EQ(text::printable("\xe0\x80\x80 \xed\xa0\x80 \xf0\x9f\x98\x80 \xe2\x82"), "??? ??? \xf0\x9f\x98\x80 ??");
  EXPECT_EQ(text::printable_lines("a\n\tb\r"), "a\n?b?");
  EXPECT_EQ(text::printable_ascii("\xc3\xa9 a\n"), "?? a?");
}

TEST(Text, IsCutBetweenCharacters) {
  EXPECT_EQ(text::beginning("a\xc3\xa9", 2), "a");
  EXPECT_EQ(text::beginning("a\xc3\xa9", 3), "a\xc3\xa9");
  EXPECT_EQ(text::beginning("\xf0\x9f\x98\x80", 3), "");
  EXPECT_EQ(text::beginning("abc", 9), "abc");
}

TEST(Text, MissingNumbersAreCountedAndFourAreNamed) {
  EXPECT_EQ(text::missing({0, 2}, 3).names, "1");
  EXPECT_EQ(text::missing({0, 1}, 2).count, 0U);
  EXPECT_EQ(text::missing({3}, 1 << 20).names, "0, 1, 2, 4 and 1048571 more");
}

}  // namespace
}  // namespace gradwire::cli
