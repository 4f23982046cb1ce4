// Free runs of pages: joined with their neighbours, taken from the shortest run that fits, and never lost.
#include "memory/page_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace gradwire::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr PageAddress kBase = 64 * kRegionBytes;

PageAddress page(std::size_t number) { return kBase + number * kPageBytes; }

TEST(PageRuns, JoinNeighbours) {
  PageRuns runs;
  runs.add({page(0), 2});
  runs.add({page(5), 1});
  EXPECT_THAT(runs.by_address(), ElementsAre(Pair(page(0), 2), Pair(page(5), 1)));
  runs.add({page(4), 1});  // in front of one
  runs.add({page(2), 1});  // behind one
  EXPECT_THAT(runs.by_address(), ElementsAre(Pair(page(0), 3), Pair(page(4), 2)));
  runs.add({page(3), 1});  // between two
  EXPECT_THAT(runs.by_address(), ElementsAre(Pair(page(0), 6)));
  EXPECT_EQ(runs.pages(), 6U);
  EXPECT_EQ(runs.longest(), 6U);
}

TEST(PageRuns, TakeTheShortestThatFits) {
  PageRuns runs;
  runs.add({page(0), 8});
  runs.add({page(20), 3});
  runs.add({page(10), 3});
  EXPECT_EQ(runs.take(9), 0U);
  EXPECT_EQ(runs.take(2), page(11)) << "the end of the lower of two equal ones";
  EXPECT_EQ(runs.take(1), page(10));
  EXPECT_EQ(runs.take(4), page(4));
  EXPECT_EQ(runs.take(4), page(0));
  EXPECT_EQ(runs.pages(), 3U);
}

TEST(PageRuns, TakeAllBetweenCutsRunsAtBothEnds) {
  PageRuns runs;
  runs.add({page(0), 4});
  runs.add({page(6), 2});
  runs.add({page(9), 4});
  EXPECT_THAT(runs.take_all_between(page(2), page(10)),
              ElementsAre(PageRun{page(2), 2}, PageRun{page(6), 2}, PageRun{page(9), 1}));
  EXPECT_THAT(runs.by_address(), ElementsAre(Pair(page(0), 2), Pair(page(10), 3)));
  EXPECT_EQ(runs.pages(), 5U);
  EXPECT_THAT(runs.take_all_between(page(2), page(10)), ElementsAre());
}

// A set of single pages is the model.
TEST(PageRuns, AgreeWithASetOfPages) {
  const std::uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::size_t kPages = 300;
  PageRuns runs;
  std::set<PageAddress> model;
  for (std::size_t i = 0; i < kPages; ++i) {
    model.insert(page(i));
  }
  runs.add({kBase, kPages});
  std::vector<PageRun> taken;
  const auto erase_from_model = [&](PageRun run) {
    for (PageAddress at = run.begin; at < run.end(); at += kPageBytes) {
      ASSERT_EQ(model.erase(at), 1U) << "handed out twice";
    }
  };
  for (int round = 0; round < 4000; ++round) {
    const std::size_t wanted = 1 + random() % 20;
    if (random() % 20 == 0) {
      const PageAddress begin = page(random() % kPages);
      for (const PageRun& run : runs.take_all_between(begin, begin + wanted * kPageBytes)) {
        erase_from_model(run);
        taken.push_back(run);
      }
    } else if (random() % 2 == 0 || taken.empty()) {
      const std::size_t longest = runs.longest();
      const PageRun run{runs.take(wanted), wanted};
      ASSERT_EQ(run.begin == 0, longest < wanted);
      if (run.begin != 0) {
        erase_from_model(run);
        taken.push_back(run);
      }
    } else {
      std::swap(taken[random() % taken.size()], taken.back());
      for (PageAddress at = taken.back().begin; at < taken.back().end(); at += kPageBytes) {
        model.insert(at);
      }
      runs.add(taken.back());
      taken.pop_back();
    }
    ASSERT_EQ(runs.pages(), model.size());
    PageAddress last = 0;
    std::size_t longest = 0;
    for (const auto& [begin, pages] : runs.by_address()) {
      ASSERT_GT(begin, last) << "two runs touch";
      last = PageRun{begin, pages}.end();
      longest = std::max(longest, pages);
    }
    ASSERT_EQ(runs.longest(), longest);
  }
}

}  // namespace
}  // namespace gradwire::memory
