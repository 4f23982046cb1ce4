// What owners hold: vectors in blocks of the pool, and counted frame buffers.
#include "memory/paged_vector.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "memory/buffer_pool.hpp"

namespace gradwire::memory {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

using Floats = PagedVector<float, MemoryUse::residuals>;

std::uint64_t in_use(MemoryUse use) { return page_pool().statistics().uses[static_cast<std::size_t>(use)].in_use; }

TEST(PagedVector, HoldsZerosUntilItIsWrittenTo) {
  {
    Floats dirty(3000);
    std::fill(dirty.begin(), dirty.end(), 7.0F);
  }
  const Floats zeros(3000);
  EXPECT_TRUE(const_cast<Floats&>(zeros).block().in_pool());
  EXPECT_THAT(std::vector<float>(zeros.begin(), zeros.end()), Each(0.0F)) << "in memory that was used before";
}

TEST(PagedVector, ResizesInPlaceWhereItCan) {
  Floats values(2000);
  std::iota(values.begin(), values.end(), 0.0F);
  const float* const place = values.data();
  values.resize(1500);
  values.resize(1900);
  EXPECT_EQ(values.data(), place);
  EXPECT_EQ(values[1499], 1499);
  EXPECT_EQ(values[1500], 0) << "what comes back is zero";
  values.resize(5000);
  EXPECT_NE(values.data(), place);
  EXPECT_EQ(values[1499], 1499);
  EXPECT_EQ(values[4999], 0);
  values.resize(0);
  EXPECT_TRUE(values.empty());
}

TEST(PagedVector, CopiesAndMoves) {
  const Floats small{1, 2, 3};
  Floats copy = small;
  EXPECT_THAT(std::vector<float>(copy.begin(), copy.end()), ElementsAre(1, 2, 3));
  EXPECT_EQ(copy, small);
  copy[1] = 5;
  EXPECT_FALSE(copy == small);
  Floats large(4000);
  const float* const place = large.data();
  large = small;
  EXPECT_EQ(large.data(), place) << "a copy takes no new memory where there is enough";
  EXPECT_EQ(large, small);
  const Floats moved = std::move(large);
  EXPECT_EQ(moved.data(), place);
  EXPECT_TRUE(large.empty());  // NOLINT(bugprone-use-after-move,hicpp-invalid-access-moved): it is empty
  EXPECT_EQ(Floats(small.begin() + 1, small.end()), (Floats{2, 3}));
}

TEST(PagedVector, ReleasesItsMemory) {
  const std::uint64_t before = in_use(MemoryUse::residuals);
  {
    const Floats values(100'000);
    EXPECT_GE(in_use(MemoryUse::residuals), before + 400'000);
  }
  EXPECT_EQ(in_use(MemoryUse::residuals), before);
}

TEST(BufferPool, CountsWhatItsBuffersTake) {
  const std::uint64_t before = in_use(MemoryUse::frames);
  BufferPool pool;
  BufferPool::Buffer first = pool.acquire(100);
  EXPECT_EQ(first.bytes().size(), 100U);
  EXPECT_EQ(pool.bytes_in_use(), kPageBytes);
  BufferPool::Buffer second = pool.acquire(60'000);
  EXPECT_EQ(pool.bytes_in_use(), kPageBytes + 60'000);
  first = std::move(second);
  EXPECT_EQ(first.bytes().size(), 60'000U);
  EXPECT_EQ(pool.bytes_in_use(), 60'000U);
  EXPECT_EQ(pool.peak_bytes(), kPageBytes + 60'000);
  first.release();
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(pool.bytes_in_use(), 0U);
  EXPECT_EQ(in_use(MemoryUse::frames), before);
}

TEST(BufferPool, LeakedBuffersStayInUse) {
  const std::uint64_t before = in_use(MemoryUse::frames);
  BufferPool pool;
  BufferPool::Buffer buffer = pool.acquire(8192);
  buffer.leak();
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(pool.bytes_in_use(), 8192U);
  EXPECT_EQ(in_use(MemoryUse::frames), before + 8192);
}

}  // namespace
}  // namespace gradwire::memory
