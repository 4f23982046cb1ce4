// The page pool among threads, and in forked children.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/error.hpp"
#include "memory/block.hpp"
#include "tests/memory/counted_pages.hpp"

namespace gradwire::memory {
namespace {

constexpr std::size_t kKibibyte = 1024;

// Blocks that one thread made and another one frees.
class Exchange {
 public:
  // Puts a block in, and takes a random one out if there are many.
  Block swap(Block block, std::uint32_t random) {
    const MutexLock lock(mutex_);
    blocks_.push_back(std::move(block));
    if (blocks_.size() < 40) {
      return {};
    }
    std::swap(blocks_[random % blocks_.size()], blocks_.back());
    Block taken = std::move(blocks_.back());
    blocks_.pop_back();
    return taken;
  }

 private:
  Mutex mutex_;
  std::vector<Block> blocks_ GUARDED_BY(mutex_);
};

void mark(const Block& block, std::uint32_t value) {
  std::memcpy(block.data(), &value, sizeof value);
  std::memcpy(block.data() + block.bytes() - sizeof value, &value, sizeof value);
}

bool is_marked(const Block& block) {
  return std::memcmp(block.data(), block.data() + block.bytes() - sizeof(std::uint32_t), sizeof(std::uint32_t)) == 0;
}

// One of 8 threads: it makes blocks that others free, keeps some of its own, and moves those by compaction.
void work(PagePool& pool, Exchange& exchange, std::uint32_t seed, std::atomic<int>& damaged) {
  std::mt19937 random(seed);
  std::vector<Block> own(12);
  for (int i = 0; i < 1500; ++i) {
    try {
      Block block(8 + random() % (200 * kKibibyte), static_cast<MemoryUse>(random() % kMemoryUses), pool);
      mark(block, random());
      const Block other = exchange.swap(std::move(block), random());
      damaged += !other.empty() && !is_marked(other);
      Block& kept = own[random() % own.size()];
      damaged += !kept.empty() && !is_marked(kept);
      kept = Block(8 + random() % (64 * kKibibyte), MemoryUse::residuals, pool);
      mark(kept, random());
    } catch (const Error&) {  // the limit: others free memory again
      own[random() % own.size()].release();
    }
    if (i % 100 == 0) {
      std::vector<Block*> offered;
      for (Block& block : own) {
        offered.push_back(&block);
      }
      pool.compact(offered);
    }
    if (i % 64 == 0) {
      pool.tend();
      static_cast<void>(pool.statistics().to_text());
    }
  }
}

TEST(PagePoolThreads, EightThreadsFreeEachOthersBlocks) {
  const std::uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  CountedPages source;
  PagePoolOptions options;
  options.limit = {16 * kRegionBytes, "the test"};
  options.trim_above = 0;
  options.trim_after = std::chrono::milliseconds(1);
  PagePool pool(source, options);
  std::atomic<int> damaged = 0;
  {
    Exchange exchange;
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] { work(pool, exchange, seed + i, damaged); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  EXPECT_EQ(damaged, 0);
  const PagePoolStatistics now = pool.statistics();
  EXPECT_EQ(now.in_use, 0U);
  for (const PagePoolStatistics::OfUse& use : now.uses) {
    EXPECT_EQ(use.in_use, 0U);
    EXPECT_GT(use.high_water, 0U);
  }
  EXPECT_LE(now.reserved_high_water, 16 * kRegionBytes);
  pool.compact({});
  EXPECT_LE(source.mapped, kRegionBytes);
}

// Returns the exit status of a child that runs `body`, which returns whether all is well.
template <typename Body>
int status_of_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// A child has a copy: it may read, free and allocate, and nothing of that reaches its parent. The fork comes while
// other threads are inside the pool, whose lock the child must find free.
TEST(PagePoolFork, AChildHasACopy) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a child that was forked among threads";
#endif
  PagePool& pool = page_pool();
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        const Block block(60 * kKibibyte, MemoryUse::frames);
      }
    });
  }
  Block block(300 * kKibibyte, MemoryUse::residuals);
  std::memset(block.data(), 7, block.bytes());
  const std::uint64_t in_use = pool.statistics().uses[1].in_use;
  for (int i = 0; i < 20; ++i) {
    const int status = status_of_child([&] {
      if (block.data()[299 * kKibibyte] != std::byte{7}) {
        return false;
      }
      std::memset(block.data(), 9, block.bytes());
      block.release();
      for (int j = 0; j < 50; ++j) {
        const Block other(40 * kKibibyte + 1000U * static_cast<unsigned>(j), MemoryUse::frames);
        std::memset(other.data(), 5, other.bytes());
      }
      pool.compact({});
      return true;
    });
    ASSERT_EQ(status, 0) << "child " << i;
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t at = 0; at < block.bytes(); ++at) {
    ASSERT_EQ(block.data()[at], std::byte{7});
  }
  EXPECT_EQ(pool.statistics().uses[1].in_use, in_use);
}

TEST(ProcessPool, TakesTheLowerLimitOfOperatorAndPolicy) {
  const auto limit_with = [](const char* operators, std::optional<std::uint64_t> policy) {
    operators == nullptr ? ::unsetenv("GRADWIRE_MEMORY_LIMIT") : ::setenv("GRADWIRE_MEMORY_LIMIT", operators, 1);
    configure_page_pool({}, policy, 2);
    return page_pool().options().limit;
  };
  EXPECT_EQ(limit_with("1GiB", std::nullopt).bytes, 1U << 30);
  EXPECT_EQ(limit_with("1GiB", 2U << 20).bytes, 2U << 20);
  EXPECT_EQ(limit_with("1MiB", 2U << 20).source, "GRADWIRE_MEMORY_LIMIT");
  EXPECT_THROW(limit_with("much", std::nullopt), Error);
  static_cast<void>(limit_with(nullptr, std::nullopt));
  EXPECT_TRUE(page_pool().has_room(1 << 20)) << "what the system leaves";
  EXPECT_FALSE(page_pool().has_room(std::uint64_t{1} << 60));
  EXPECT_NE(page_pool().options().limit.source.find("one of 2 ranks"), std::string::npos)
      << page_pool().options().limit.source;
  configure_page_pool({}, std::nullopt, 1);
}

}  // namespace
}  // namespace gradwire::memory
