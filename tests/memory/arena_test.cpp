// Tests the allocation policy of device memory, over a source without a device.
#include "memory/arena.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <set>

#include "gradwire/error.hpp"

namespace gradwire::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kNoLimit = ~std::size_t{0};
constexpr std::size_t kSlab = 4096;

// A source that gives addresses that must not be used, and records the requests.
class FakeSource final : public ArenaSource {
 public:
  explicit FakeSource(std::size_t limit = kNoLimit, std::uintptr_t base = std::uintptr_t{1} << 40)
      : limit_(limit), next_(base) {}

  std::byte* allocate(std::size_t bytes) override {
    if (bytes > limit_ - taken_) {
      return nullptr;
    }
    taken_ += bytes;
    asked.push_back(bytes);
    auto* data = reinterpret_cast<std::byte*>(next_);
    next_ += bytes;
    live.insert(data);
    return data;
  }
  void free(std::byte* slab) noexcept override { EXPECT_EQ(live.erase(slab), 1U); }
  [[nodiscard]] std::string why() const override { return "the fake has no more"; }

  std::vector<std::size_t> asked;
  std::set<std::byte*> live;

 private:
  std::size_t limit_;
  std::size_t taken_ = 0;
  std::uintptr_t next_;
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Arena, BlocksAreAlignedAndApart) {
  FakeSource source;
  Arena arena(source, kSlab);
  std::set<std::byte*> seen;
  for (const std::size_t bytes : {0, 1, 256, 257, 4096, 5000}) {
    std::byte* block = arena.acquire(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % Arena::kAlignment, 0U) << bytes;
    EXPECT_TRUE(seen.insert(block).second);
  }
  EXPECT_THAT(source.asked, ElementsAre(4096, 4096, 5120));  // the last is larger than a slab
  EXPECT_EQ(arena.footprint().bytes_in_use, 256U + 256 + 256 + 512 + 4096 + 5120);
}

TEST(Arena, EveryBlockComesBackAndJoinsItsNeighbours) {
  FakeSource source;
  {
    Arena arena(source, kSlab);
    std::vector<std::byte*> blocks;
    for (int i = 0; i < 16; ++i) {
      blocks.push_back(arena.acquire(256));
    }
    EXPECT_EQ(source.asked.size(), 1U);
    for (const std::size_t i : {3, 1, 2, 0, 15, 13, 14, 4, 5, 6, 7, 8, 9, 10, 11, 12}) {
      arena.release(blocks[i]);
    }
    arena.release(nullptr);
    EXPECT_EQ(arena.footprint().bytes_in_use, 0U);
    EXPECT_EQ(arena.acquire(4096), blocks[0]);
    EXPECT_EQ(source.asked.size(), 1U);
    EXPECT_EQ(arena.footprint().peak_bytes, 4096U);
    EXPECT_EQ(source.live.size(), 1U);
  }
  EXPECT_TRUE(source.live.empty());
}

TEST(Arena, ExhaustionNamesSizesAndWhy) {
  FakeSource source(4096);
  Arena arena(source, kSlab);
  std::byte* held = arena.acquire(1024);
  const std::string text = message_of([&] { static_cast<void>(arena.acquire(3500)); });
  EXPECT_THAT(text, HasSubstr("3584 bytes"));
  EXPECT_THAT(text, HasSubstr("1024 of 4096 bytes"));
  EXPECT_THAT(text, HasSubstr("the fake has no more"));
  EXPECT_THAT(message_of([&] { arena.add_slabs({8192}); }), HasSubstr("8192 bytes"));
  arena.release(held);
  EXPECT_EQ(arena.acquire(3500), held) << "an error must leave the arena usable";
}

// A slab of the usual size does not fit any more, but the block does.
TEST(Arena, TakesLessWhereASlabDoesNotFit) {
  FakeSource source(1024);
  Arena arena(source, kSlab);
  EXPECT_NE(arena.acquire(512), nullptr);
  EXPECT_THAT(source.asked, ElementsAre(512));
}

TEST(Arena, WhileFixedNothingIsAllocated) {
  FakeSource source;
  Arena arena(source, kSlab);
  arena.add_slabs({2048});
  arena.set_fixed(true);
  std::byte* block = arena.acquire(2048);
  const std::string text = message_of([&] { static_cast<void>(arena.acquire(256)); });
  EXPECT_THAT(text, HasSubstr("256 bytes was not reserved"));
  EXPECT_THAT(text, HasSubstr("call reserve()"));
  arena.release(block);
  EXPECT_EQ(arena.acquire(2048), block);
  EXPECT_EQ(source.asked.size(), 1U);
  arena.set_fixed(false);
  EXPECT_NE(arena.acquire(256), nullptr);
}

// Plays the requests of a step: sizes vary, several are held at once, and they are released out of order.
void play(Arena& arena, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte*> held;
  for (int i = 0; i < 400; ++i) {
    if (held.size() > 6 || (!held.empty() && random() % 3 == 0)) {
      const std::size_t which = random() % held.size();
      arena.release(held[which]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      held.push_back(arena.acquire(1 + random() % 6000));
    }
  }
  for (std::byte* block : held) {
    arena.release(block);
  }
}

// The memory that a copy takes in a dry run is enough for the same requests. Mutation tried: slabs are searched from
// the last one on.
TEST(Arena, WhatLastsIsNotWhereAGraphMayWrite) {
  FakeSource source;
  Arena arena(source, 4096);
  std::byte* used = arena.acquire(1024);
  arena.release(used);
  std::byte* before = arena.acquire_lasting(256);
  EXPECT_EQ(before, used) << "nothing was captured";
  arena.fence();
  std::byte* lasting = arena.acquire_lasting(256);
  EXPECT_EQ(arena.slabs().size(), 2U);
  EXPECT_EQ(arena.acquire_lasting(256), lasting + 256);
  EXPECT_EQ(arena.acquire(256), used + 256) << "transient use of the first slab goes on";
  EXPECT_EQ(arena.slabs().size(), 2U);
}

TEST(Arena, WhatCannotBeReservedWholeIsGivenBack) {
  FakeSource source(3 * kSlab);
  Arena arena(source, kSlab);
  std::byte* held = arena.acquire(1024);
  EXPECT_THAT(message_of([&] { arena.add_slabs({kSlab, kSlab, kSlab}); }), HasSubstr("4096 bytes"));
  EXPECT_EQ(source.live.size(), 1U);
  EXPECT_EQ(arena.footprint().held_bytes, kSlab);
  EXPECT_EQ(arena.acquire(1024), held + 1024);

  FakeSource more;
  Arena other(more, kSlab);
  other.add_slabs({kSlab, kSlab, kSlab});
  other.drop_slabs(1);
  EXPECT_EQ(more.live.size(), 1U);
  EXPECT_THAT(other.slabs(), ElementsAre(kSlab));
}

// Mutation tried: blocks of a loan may lie in slabs, too.
TEST(Arena, ALoanIsUsedAloneAndLeavesNoTrace) {
  FakeSource source;
  Arena arena(source, kSlab);
  arena.release(arena.acquire(2048));
  std::byte* const lent = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 45);
  arena.begin_loan(lent, 1024);
  std::byte* first = arena.acquire(256);
  EXPECT_EQ(first, lent);
  EXPECT_EQ(arena.acquire(512), lent + 256);
  EXPECT_THAT(message_of([&] { static_cast<void>(arena.acquire(512)); }), HasSubstr("memory on loan"));
  arena.release(first);
  EXPECT_EQ(arena.acquire(256), lent);
  arena.release(lent);
  arena.release(lent + 256);
  arena.end_loan();
  EXPECT_EQ(arena.footprint().bytes_in_use, 0U);
  EXPECT_EQ(arena.slabs().size(), 1U);
  EXPECT_NE(arena.acquire(256), lent);
}

TEST(Arena, ADryRunSaysWhatToReserve) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    FakeSource source;
    Arena arena(source, kSlab);
    play(arena, 1000 + seed);  // a different earlier step
    std::byte* kept = arena.acquire(3000);
    FakeSource dry_source(kNoLimit, std::uintptr_t{1} << 50);
    const std::size_t before = arena.slabs().size();
    {
      Arena dry(arena, dry_source);
      play(dry, seed);
      const auto all = dry.slabs();
      arena.add_slabs({all.begin() + static_cast<std::ptrdiff_t>(before), all.end()});
    }
    EXPECT_TRUE(dry_source.live.empty()) << "the copy frees only its own slabs";
    const std::size_t asked = source.asked.size();
    arena.set_fixed(true);
    ASSERT_NO_THROW(play(arena, seed)) << "seed " << seed;
    ASSERT_NO_THROW(play(arena, seed)) << "seed " << seed;
    EXPECT_EQ(source.asked.size(), asked);
    arena.release(kept);
    EXPECT_EQ(arena.footprint().bytes_in_use, 0U);
  }
}

}  // namespace
}  // namespace gradwire::memory
