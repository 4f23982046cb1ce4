// The page pool on one thread: size classes, merging, limits, trimming, and a model of its blocks.
#include "memory/page_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "memory/block.hpp"
#include "memory/poison.hpp"
#include "tests/memory/counted_pages.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire::memory {
namespace {

using test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

PagePoolOptions limited(std::uint64_t bytes) {
  PagePoolOptions options;
  options.limit = {bytes, "the test"};
  return options;
}

TEST(PagePool, RoundsABlockUpByAtMostAnEighth) {
  CountedPages source;
  PagePool pool(source);
  for (std::size_t bytes = 4 * kKiB; bytes <= 5 * kMiB; bytes += bytes / 7 + 1) {
    const Block block(bytes, MemoryUse::frames, pool);
    const std::uint64_t taken = pool.statistics().in_use;
    const std::size_t pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % kPageBytes, 0U);
    EXPECT_GE(taken, pages);
    EXPECT_LE(taken, pages + pages / 8) << bytes;
    std::memset(block.data(), 1, bytes);
  }
  EXPECT_EQ(pool.statistics().in_use, 0U);
}

TEST(PagePool, SmallBlocksAreTheHeaps) {
  CountedPages source;
  PagePool pool(source);
  const Block small(kPageBytes - 1, MemoryUse::tables, pool);
  const Block none(0, MemoryUse::tables, pool);
  EXPECT_FALSE(small.in_pool());
  EXPECT_FALSE(small.empty());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.data()) % 64, 0U);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(source.maps, 0U);
}

TEST(PagePool, AFreedBlockIsTheNextOfItsSize) {
  CountedPages source;
  PagePool pool(source);
  Block first(57 * kKiB, MemoryUse::frames, pool);
  const std::byte* const place = first.data();
  Block moved = std::move(first);
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move,hicpp-invalid-access-moved): it is empty
  EXPECT_EQ(moved.data(), place);
  moved.release();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Block(58 * kKiB, MemoryUse::frames, pool).data(), place) << "of the same class";
  }
  EXPECT_EQ(source.maps, 1U);
}

TEST(PagePool, FreeBlocksAreMergedWhenNothingElseFits) {
  CountedPages source;
  PagePool pool(source);
  std::vector<Block> small;
  for (std::size_t i = 0; i < kRegionBytes / (4 * kKiB); ++i) {
    small.emplace_back(4 * kKiB, MemoryUse::frames, pool);
  }
  EXPECT_EQ(source.maps, 1U);
  small.clear();
  EXPECT_EQ(pool.statistics().longest_free, 0U) << "blocks wait in the list of their class";
  EXPECT_GT(pool.statistics().fragmentation(), 0.99);
  const Block large(2 * kMiB, MemoryUse::frames, pool);
  EXPECT_EQ(source.maps, 1U) << "the blocks were joined to one run";
}

TEST(PagePool, MayMergeAtOnce) {
  CountedPages source;
  PagePoolOptions options;
  options.merges_lazily = false;
  PagePool pool(source, options);
  {
    const Block one(4 * kKiB, MemoryUse::frames, pool);
    const Block large(5 * kMiB, MemoryUse::frames, pool);
  }
  EXPECT_EQ(pool.statistics().fragmentation(), 0);
  EXPECT_EQ(pool.statistics().longest_free, pool.statistics().reserved);
}

TEST(PagePool, CountsByUse) {
  CountedPages source;
  PagePool pool(source);
  Block rows(64 * kKiB, MemoryUse::tables, pool);
  { const Block frame(128 * kKiB, MemoryUse::frames, pool); }
  const PagePoolStatistics now = pool.statistics();
  const auto of = [&](MemoryUse use) { return now.uses[static_cast<std::size_t>(use)]; };
  EXPECT_EQ(of(MemoryUse::tables).in_use, 64 * kKiB);
  EXPECT_EQ(of(MemoryUse::frames).in_use, 0U);
  EXPECT_EQ(of(MemoryUse::frames).high_water, 128 * kKiB);
  EXPECT_EQ(of(MemoryUse::residuals).high_water, 0U);
  EXPECT_EQ(now.in_use, 64 * kKiB);
  EXPECT_EQ(now.high_water, 192 * kKiB);
  EXPECT_EQ(now.reserved, kRegionBytes);
  EXPECT_THAT(now.to_text(), AllOf(HasSubstr("64KiB in use"), HasSubstr("frames 0B (at most 128KiB)"),
                                   HasSubstr("2MiB reserved"), Not(HasSubstr("residuals"))));
}

TEST(PagePool, ALimitIsAnErrorThatNamesItAndLosesNothing) {
  CountedPages source;
  PagePool pool(source, limited(4 * kMiB));
  Block residuals(3 * kMiB, MemoryUse::residuals, pool);
  const Error error = error_of([&] { const Block more(2 * kMiB, MemoryUse::frames, pool); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("frames"), HasSubstr("2MiB"), HasSubstr("residuals 3MiB"),
                                  HasSubstr("the limit is 4MiB (the test)"), HasSubstr("raise it")));
  EXPECT_EQ(pool.statistics().failures, 1U);
  EXPECT_NO_THROW(Block(kMiB, MemoryUse::frames, pool));
  residuals.release();
  EXPECT_NO_THROW(Block(4 * kMiB, MemoryUse::frames, pool));
  EXPECT_EQ(pool.statistics().reserved_high_water, 4 * kMiB);
}

TEST(PagePool, FreeRegionsThatAreTooShortMakeRoomWithinTheLimit) {
  CountedPages source;
  PagePool pool(source, limited(8 * kMiB));
  std::vector<Block> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.emplace_back(2 * kMiB, MemoryUse::frames, pool);
  }
  blocks[0].release();
  blocks[2].release();
  EXPECT_NO_THROW(Block(4 * kMiB, MemoryUse::frames, pool));
  EXPECT_LE(source.mapped, 8 * kMiB);
}

TEST(PagePool, IsAskedBeforeAStepWhetherItHasRoom) {
  CountedPages source;
  PagePool pool(source, limited(6 * kMiB));
  const Block held(2 * kMiB, MemoryUse::residuals, pool);
  EXPECT_TRUE(pool.has_room(4 * kMiB));
  EXPECT_FALSE(pool.has_room(4 * kMiB + 1));
  EXPECT_NO_THROW(pool.require(4 * kMiB, "step 3 needs"));
  EXPECT_THAT(error_of([&] { pool.require(5 * kMiB, "step 3 needs"); }).what(),
              AllOf(HasSubstr("step 3 needs 5MiB"), HasSubstr("6MiB")));
  EXPECT_EQ(source.mapped, 2 * kMiB) << "asking takes nothing";
}

// An earlier session of the process may have had a higher limit.
TEST(PagePool, FreeMemoryAboveALowerLimitIsNotForUse) {
  CountedPages source;
  PagePool pool(source);
  const Block held(3 * kMiB, MemoryUse::residuals, pool);
  Block(16 * kMiB, MemoryUse::frames, pool).release();
  EXPECT_GE(source.mapped, 16 * kMiB);
  pool.configure(limited(8 * kMiB));
  EXPECT_EQ(source.mapped, 8 * kMiB);
  EXPECT_FALSE(pool.has_room(6 * kMiB));
  EXPECT_TRUE(pool.has_room(5 * kMiB));
  EXPECT_THROW(Block(6 * kMiB, MemoryUse::frames, pool), Error);
  pool.configure(limited(2 * kMiB));
  EXPECT_EQ(source.mapped, 4 * kMiB) << "blocks in use stay";
}

TEST(PagePool, LooksAtTheLimitAgainBeforeItRefuses) {
  CountedPages source;
  PagePoolOptions options = limited(0);
  std::uint64_t left = 2 * kMiB;
  options.limit_now = [&](std::uint64_t reserved) { return MemoryLimit{reserved + left, "what is left"}; };
  PagePool pool(source, options);
  const Block first(2 * kMiB, MemoryUse::frames, pool);
  left = 0;
  EXPECT_THAT(error_of([&] { const Block more(kMiB, MemoryUse::frames, pool); }).what(),
              HasSubstr("2MiB (what is left)"));
  left = 2 * kMiB;
  EXPECT_NO_THROW(Block(kMiB, MemoryUse::frames, pool));
}

TEST(PagePool, ASystemWithoutMemoryIsAnErrorWithItsReason) {
  CountedPages source;
  source.most = 2 * kMiB;
  PagePool pool(source);
  const Block first(2 * kMiB, MemoryUse::frames, pool);
  EXPECT_THAT(error_of([&] { const Block more(kMiB, MemoryUse::frames, pool); }).what(),
              HasSubstr("the system gives no more (the test has no more)"));
}

TEST(PagePool, LeakedBlocksStayInUse) {
  SystemPages source;  // its region stays mapped, as it must
  PagePool pool(source);
  Block block(kMiB, MemoryUse::frames, pool);
  std::byte* const memory = block.data();
  block.leak();
  EXPECT_EQ(pool.statistics().in_use, kMiB);
  memory[0] = std::byte{1};
}

class Trimming : public ::testing::Test {
 protected:
  static PagePoolOptions options() {
    PagePoolOptions options;
    options.trim_above = 4 * kMiB;
    options.trim_after = std::chrono::seconds(10);
    return options;
  }
  void use(std::size_t bytes) { const Block block(bytes, MemoryUse::frames, pool_); }
  void tend_after(int seconds) { pool_.tend(now_ += std::chrono::seconds(seconds)); }

  CountedPages source_;
  PagePool pool_{source_, options()};
  PagePool::Clock::time_point now_ = PagePool::Clock::now();
};

TEST_F(Trimming, GivesBackWhatWasIdleAboveTheWatermark) {
  use(20 * kMiB);
  tend_after(11);
  EXPECT_EQ(source_.mapped, 20 * kMiB) << "it was used in the time that ends";
  use(6 * kMiB);
  tend_after(9);
  EXPECT_EQ(source_.mapped, 20 * kMiB);
  tend_after(2);
  EXPECT_EQ(source_.mapped, 10 * kMiB) << "6 MiB were needed, and 4 MiB are kept";
  EXPECT_EQ(pool_.statistics().trimmed, 10 * kMiB);
  tend_after(11);
  EXPECT_EQ(source_.mapped, 4 * kMiB);
}

TEST_F(Trimming, LeavesWhatEachStepNeedsAgain) {
  for (int step = 0; step < 20; ++step) {
    use(20 * kMiB);
    tend_after(11);
  }
  EXPECT_EQ(source_.maps, 1U);
}

TEST_F(Trimming, KeepsRegionsWithBlocks) {
  std::vector<Block> blocks;
  for (int i = 0; i < 10; ++i) {
    blocks.emplace_back(2 * kMiB, MemoryUse::residuals, pool_);
  }
  blocks[3].release();
  blocks[4].release();
  blocks[7].release();
  tend_after(11);
  tend_after(11);
  EXPECT_EQ(source_.mapped, 18 * kMiB) << "14 MiB in use, and 4 MiB kept";
  for (const Block& block : blocks) {
    if (!block.empty()) {
      std::memset(block.data(), 2, block.bytes());
    }
  }
}

#if GRADWIRE_ADDRESS_SANITIZER
TEST(PagePool, PoisonsFreeMemory) {
  CountedPages source;
  PagePool pool(source);
  Block block(5000, MemoryUse::frames, pool);
  std::byte* const memory = block.data();
  EXPECT_FALSE(__asan_address_is_poisoned(memory + 4999));
  EXPECT_TRUE(__asan_address_is_poisoned(memory + 5000)) << "behind what was asked for";
  block.release();
  EXPECT_TRUE(__asan_address_is_poisoned(memory));
}
#endif

// A map of blocks with their contents is the model. Everything that the pool can do happens between them.
TEST(PagePool, AgreesWithAMapOfBlocks) {
  const std::uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  CountedPages source;
  PagePoolOptions options = limited(48 * kMiB);
  options.trim_above = 0;
  options.merges_lazily = random() % 2 == 0;
  PagePool pool(source, options);
  std::map<int, Block> model;  // the first and the last words of each block are its number
  int last_number = 0;
  auto now = PagePool::Clock::now();
  const auto words = [](const Block& block) {
    return std::pair{reinterpret_cast<int*>(block.data()),
                     reinterpret_cast<int*>(block.data() + block.bytes() / 4 * 4) - 1};
  };
  for (int round = 0; round < 6000; ++round) {
    const std::uint32_t what = random() % 100;
    if (what < 55) {
      const std::size_t bytes = random() % 50 == 0  ? 4 * kMiB + random() % (4 * kMiB)
                                : random() % 2 == 0 ? 1 + random() % (16 * kKiB)
                                                    : 1 + random() % (512 * kKiB);
      try {
        Block block(std::max<std::size_t>(4, bytes), static_cast<MemoryUse>(random() % kMemoryUses), pool);
        const auto [first, last] = words(block);
        *first = *last = ++last_number;
        model.emplace(last_number, std::move(block));
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::out_of_memory);
        for (int i = 0; i < 20 && !model.empty(); ++i) {
          model.erase(model.begin());
        }
      }
    } else if (what < 96 && !model.empty()) {
      model.erase(std::next(model.begin(), static_cast<std::ptrdiff_t>(random() % model.size())));
    } else if (what < 98) {
      pool.tend(now += std::chrono::seconds(20));
    } else {
      std::vector<Block*> offered;
      for (auto& [number, block] : model) {
        if (random() % 8 != 0) {
          offered.push_back(&block);
        }
      }
      pool.compact(offered);
    }
    std::uint64_t in_use = 0;
    std::map<const std::byte*, std::size_t> places;
    for (const auto& [number, block] : model) {
      const auto [first, last] = words(block);
      ASSERT_EQ(*first, number) << "round " << round;
      ASSERT_EQ(*last, number) << "round " << round;
      if (block.in_pool()) {
        places.emplace(block.data(), block.bytes());
        in_use += block.bytes();
      }
    }
    const std::byte* end = nullptr;
    for (const auto& [begin, bytes] : places) {
      ASSERT_GE(begin, end) << "two blocks overlap";
      end = begin + bytes;
    }
    const PagePoolStatistics statistics = pool.statistics();
    ASSERT_GE(statistics.in_use, in_use);
    ASSERT_LE(statistics.in_use, in_use + in_use / 8 + places.size() * kPageBytes);
    ASSERT_EQ(statistics.reserved, source.mapped);
    ASSERT_LE(statistics.reserved, 48 * kMiB);
    ASSERT_GE(statistics.reserved, statistics.in_use);
  }
  EXPECT_GT(pool.statistics().moved, 0U);
  EXPECT_GT(pool.statistics().failures, 0U);
}

}  // namespace
}  // namespace gradwire::memory
