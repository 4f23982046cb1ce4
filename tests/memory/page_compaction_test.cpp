// Compaction: what it moves, what it gives back, and when it is due.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "memory/block.hpp"
#include "tests/memory/counted_pages.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire::memory {
namespace {

using test::error_of;

constexpr std::size_t kBlock = 128 * 1024;
constexpr std::size_t kInRegion = kRegionBytes / kBlock;

class Compaction : public ::testing::Test {
 protected:
  // Fills regions with blocks, each of which holds its number.
  void fill(std::size_t regions) {
    for (std::size_t i = 0; i < regions * kInRegion; ++i) {
      blocks_.emplace_back(kBlock, MemoryUse::residuals, pool_);
      std::memset(blocks_.back().data(), static_cast<int>(i % 251), kBlock);
    }
  }
  // Releases all but each n-th block.
  void thin(std::size_t n) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (i % n != 0) {
        blocks_[i].release();
      }
    }
  }
  [[nodiscard]] std::vector<Block*> all() {
    std::vector<Block*> all = {nullptr};
    for (Block& block : blocks_) {
      all.push_back(&block);
    }
    return all;
  }
  void expect_contents() const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      for (std::size_t at = 0; at < blocks_[i].bytes(); at += 1000) {
        ASSERT_EQ(blocks_[i].data()[at], static_cast<std::byte>(i % 251)) << "block " << i;
      }
    }
  }
  void expect_aim() const {
    const PagePoolStatistics now = pool_.statistics();
    EXPECT_LE(static_cast<double>(now.reserved),
              PagePool::kAimedReserve * static_cast<double>(now.in_use) + kRegionBytes);
    EXPECT_EQ(now.reserved, source_.mapped);
  }

  CountedPages source_;
  PagePool pool_{source_};
  std::vector<Block> blocks_;
};

TEST_F(Compaction, GivesSparseRegionsBackAndKeepsContents) {
  fill(20);
  thin(10);
  EXPECT_EQ(source_.mapped, 20 * kRegionBytes);
  const std::uint64_t given = pool_.compact(all());
  EXPECT_EQ(given, 20 * kRegionBytes - source_.mapped);
  EXPECT_GT(pool_.statistics().moved, 0U);
  EXPECT_LE(pool_.statistics().moved, pool_.statistics().in_use) << "no block moves twice";
  expect_aim();
  expect_contents();
  const std::uint64_t moved = pool_.statistics().moved;
  EXPECT_EQ(pool_.compact(all()), 0U);
  EXPECT_EQ(pool_.statistics().moved, moved) << "there is nothing more to gain";
}

TEST_F(Compaction, LeavesRegionsThatHoldBlocksOfOthers) {
  fill(8);
  thin(4);
  std::vector<Block*> offered;
  std::vector<std::byte*> places;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    places.push_back(blocks_[i].data());
    if (i != 0) {
      offered.push_back(&blocks_[i]);
    }
  }
  pool_.compact(offered);
  EXPECT_EQ(blocks_[0].data(), places[0]);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (reinterpret_cast<std::uintptr_t>(places[i]) / kRegionBytes ==
        reinterpret_cast<std::uintptr_t>(places[0]) / kRegionBytes) {
      EXPECT_EQ(blocks_[i].data(), places[i]) << "moving it would not empty the region";
    }
  }
  expect_contents();
}

TEST_F(Compaction, WithoutOfferedBlocksGivesFreeRegionsBack) {
  fill(10);
  thin(1000);
  pool_.compact({});
  EXPECT_LE(source_.mapped, 2 * kRegionBytes);
}

TEST_F(Compaction, MakesARunWhereNoneWasLongEnough) {
  fill(8);
  pool_.configure([] {
    PagePoolOptions options;
    options.limit = {8 * kRegionBytes, "the test"};
    return options;
  }());
  thin(kInRegion);  // one block is left in each region
  EXPECT_FALSE(pool_.compaction_due());
  error_of([&] { const Block large(2 * kRegionBytes, MemoryUse::residuals, pool_); });
  EXPECT_TRUE(pool_.compaction_due()) << "more than 60% is free";
  pool_.compact(all());
  EXPECT_FALSE(pool_.compaction_due());
  EXPECT_NO_THROW(Block(2 * kRegionBytes, MemoryUse::residuals, pool_));
  expect_contents();
}

TEST_F(Compaction, IsDueAfterThreeFailuresInARow) {
  PagePoolOptions options;
  options.limit = {2 * kRegionBytes, "the test"};
  pool_.configure(options);
  fill(2);
  const auto fail = [&] { error_of([&] { const Block more(kBlock, MemoryUse::frames, pool_); }); };
  fail();
  fail();
  blocks_.back().release();
  { const Block again(kBlock, MemoryUse::frames, pool_); }
  const Block last(kBlock, MemoryUse::frames, pool_);
  fail();
  fail();
  EXPECT_FALSE(pool_.compaction_due()) << "a request between them was met";
  fail();
  EXPECT_TRUE(pool_.compaction_due());
}

TEST_F(Compaction, IsDueWhereALookFindsTooMuchReserved) {
  PagePoolOptions options;
  options.trim_above = 0;
  options.trim_after = std::chrono::hours(1);  // so that only the look acts
  pool_.configure(options);
  fill(10);
  auto now = PagePool::Clock::now();
  pool_.tend(now += std::chrono::seconds(31));
  EXPECT_FALSE(pool_.compaction_due()) << "all of it is in use";
  thin(5);
  pool_.tend(now += std::chrono::hours(2));
  EXPECT_FALSE(pool_.compaction_due()) << "it was in use until then";
  options.trim_after = std::chrono::seconds(1);
  options.trim_above = 0;
  pool_.configure(options);
  pool_.tend(now += std::chrono::seconds(2));
  pool_.tend(now += std::chrono::seconds(2));
  EXPECT_FALSE(pool_.compaction_due()) << "the next look comes 30 s after the last one";
  pool_.tend(now += std::chrono::seconds(30));
  EXPECT_TRUE(pool_.compaction_due());
}

TEST_F(Compaction, OfRandomSizesReachesItsAim) {
  const std::uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < 600; ++i) {
    blocks_.emplace_back(4096 + random() % (300 * 1024), MemoryUse::residuals, pool_);
    std::memset(blocks_.back().data(), static_cast<int>(i % 251), blocks_.back().bytes());
  }
  for (Block& block : blocks_) {
    if (random() % 4 != 0) {
      block.release();
    }
  }
  pool_.compact(all());
  expect_aim();
  expect_contents();
}

}  // namespace
}  // namespace gradwire::memory
