// Tests that the kernels of communicators that open windows at the same time fit on their GPUs together: two ranks with
// a GPU each have two communicators, of devices on host memory, and each exchange of an opening can be held up.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device/window_operations.hpp"
#include "tests/support/host_device.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::size_t kPair = 2;
constexpr std::uint32_t kMost = kernels::kMostWindowBlocks;

/// The sum of the reservations of each rank's process.
using Reserved = std::array<std::shared_ptr<std::atomic<std::uint32_t>>, kPair>;

Reserved nothing_reserved() {
  return {std::make_shared<std::atomic<std::uint32_t>>(0), std::make_shared<std::atomic<std::uint32_t>>(0)};
}

/// A communicator of two ranks whose devices share the GPUs of `reserved` with those of other communicators.
class PairOfRanks {
 public:
  PairOfRanks(const Reserved& reserved, std::uint32_t resident) {
    const kernels::WindowShape largest{.ranks = kPair, .rank = 0, .blocks = kMost, .slot_bytes = kWindowSlotBytes};
    const auto memory = std::make_shared<test::WindowMemory>(kPair, kernels::window_bytes(largest));
    const auto transports = make_inproc_world(kPair);
    for (std::size_t rank = 0; rank < kPair; ++rank) {
      devices_[rank] = std::make_unique<test::HostDevice>(transports[rank]);
      test::HostWindows& windows = device(rank).in_node;
      windows.memory = memory;
      windows.check = [](const kernels::WindowPlaces& places) { kernels::check_windows(places, nullptr); };
      windows.resident = resident;
      windows.reserved = reserved[rank];
    }
  }

  [[nodiscard]] test::HostDevice& device(std::size_t rank) { return *devices_[rank]; }
  /// Opens windows on a rank and returns why it has none, "" for success. `behind` is called with the number of each
  /// exchange that has ended. Behind exchange 0 both ranks have reserved blocks, and neither knows those of others;
  /// before exchange 1 each looks at them.
  std::string open(
      std::size_t rank, const std::function<void(int exchange)>& behind = [](int) {}) {
    int exchanges = 0;
    return device(rank).open_windows(
        [&](const std::string& mine) {
          std::vector<std::string> all = exchange(rank, mine);
          behind(exchanges++);
          return all;
        },
        std::chrono::seconds(20));
  }
  /// Returns the blocks of a rank's kernels; 0 without windows.
  [[nodiscard]] std::uint32_t blocks(std::size_t rank) {
    return device(rank).windows() == nullptr ? 0 : device(rank).windows()->places().shape.blocks;
  }

 private:
  std::vector<std::string> exchange(std::size_t rank, const std::string& mine) {
    texts_[rank] = mine;
    meeting_.arrive_and_wait();
    std::vector<std::string> all(texts_.begin(), texts_.end());
    meeting_.arrive_and_wait();
    return all;
  }

  std::barrier<> meeting_{kPair};
  std::array<std::string, kPair> texts_;
  std::array<std::unique_ptr<test::HostDevice>, kPair> devices_;
};

void on_both_ranks(const std::function<void(std::size_t rank)>& body) {
  const test::Watchdog watchdog("openings of windows", std::chrono::seconds(60));
  std::jthread other([&] { body(1); });
  body(0);
}

// Mutation tried: an opening reserves its blocks when it has looked at those of others; then each takes 64 of 100.
TEST(WindowReservation, AnOpeningInsideAnotherOneLeavesItsBlocks) {
  const Reserved reserved = nothing_reserved();
  PairOfRanks outer(reserved, 100);
  PairOfRanks inner(reserved, 100);
  on_both_ranks([&](std::size_t rank) {
    const auto open_inner = [&](int exchange) {
      if (exchange == 0) {
        EXPECT_EQ(inner.open(rank), "");
      }
    };
    EXPECT_EQ(outer.open(rank, open_inner), "");
    EXPECT_EQ(inner.blocks(rank), 100 - kMost) << "the outer one may take all that it has reserved";
    EXPECT_EQ(outer.blocks(rank), kMost);
    EXPECT_EQ(*reserved[rank], 100U);
  });
}

// Each communicator comes first on one of the ranks, and all reserve before any of them looks,
// and look before any of them gives back.
TEST(WindowReservation, OpeningsAtTheSameTimeFitTogetherOrTakeNothing) {
  for (const std::uint32_t resident : {kMost, 100U, 2 * kMost}) {
    SCOPED_TRACE(resident);
    const Reserved reserved = nothing_reserved();
    PairOfRanks first(reserved, resident);
    PairOfRanks second(reserved, resident);
    std::barrier all(2 * kPair);
    on_both_ranks([&](std::size_t rank) {
      const auto open = [&](PairOfRanks& ranks) {
        const std::string why = ranks.open(rank, [&](int exchange) {
          if (exchange < 2) {
            all.arrive_and_wait();
          }
        });
        EXPECT_EQ(why.empty(), resident > kMost) << why;
      };
      std::jthread other([&] { open(rank == 0 ? second : first); });
      open(rank == 0 ? first : second);
    });
    for (std::size_t rank = 0; rank < kPair; ++rank) {
      EXPECT_EQ(first.blocks(rank), resident - kMost);
      EXPECT_EQ(second.blocks(rank), resident - kMost);
      EXPECT_EQ(*reserved[rank], 2 * (resident - kMost)) << "what an opening does not use it gives back";
    }
  }
}

// Mutation tried: a reservation is not given back at its end.
TEST(WindowReservation, BlocksAreGivenBackOnFailureAndAtTheEnd) {
  const Reserved reserved = nothing_reserved();
  {
    PairOfRanks refused(reserved, kMost);
    refused.device(1).in_node.refuses = "no peer access";
    on_both_ranks([&](std::size_t rank) { EXPECT_EQ(refused.open(rank), "rank 1: no peer access"); });
    EXPECT_EQ(*reserved[0] + *reserved[1], 0U);
    PairOfRanks opened(reserved, kMost);
    on_both_ranks([&](std::size_t rank) { EXPECT_EQ(opened.open(rank), ""); });
    EXPECT_EQ(*reserved[0] + *reserved[1], 2 * kMost);
    PairOfRanks late(reserved, kMost);
    on_both_ranks([&](std::size_t rank) { EXPECT_NE(late.open(rank), ""); });
  }
  EXPECT_EQ(*reserved[0] + *reserved[1], 0U);
}

}  // namespace
}  // namespace gradwire::exchange
