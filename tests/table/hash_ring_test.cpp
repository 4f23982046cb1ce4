// Tests consistent hashing: shares are even, and a world that grows or shrinks moves only the rows that it must.
#include "table/hash_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gradwire::table {
namespace {

constexpr std::uint64_t kIds = 200'000;

std::vector<int> owners(const HashRing& ring) {
  std::vector<int> result(kIds);
  for (std::uint64_t id = 0; id < kIds; ++id) {
    result[id] = ring.owner(id);
  }
  return result;
}

TEST(HashRing, SharesAreEven) {
  for (const int ranks : {1, 2, 3, 4, 8, 16}) {
    std::vector<int> share(static_cast<std::size_t>(ranks));
    for (const int owner : owners(HashRing(ranks))) {
      ASSERT_TRUE(owner >= 0 && owner < ranks);
      ++share[static_cast<std::size_t>(owner)];
    }
    for (const int count : share) {
      EXPECT_NEAR(static_cast<double>(count) * ranks / kIds, 1.0, 0.15) << ranks << " ranks";
    }
  }
}

TEST(HashRing, OneMoreRankMovesLittleAndOnlyToIt) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const std::vector<int> before = owners(HashRing(ranks));
    const std::vector<int> after = owners(HashRing(ranks + 1));
    std::uint64_t moved = 0;
    for (std::uint64_t id = 0; id < kIds; ++id) {
      if (before[id] != after[id]) {
        ++moved;
        ASSERT_EQ(after[id], ranks) << "row " << id << " moved between ranks that stay";
      }
    }
    EXPECT_LE(static_cast<double>(moved) / kIds, 1.3 / (ranks + 1)) << ranks << " ranks";
    EXPECT_GT(moved, 0U);
  }
}

TEST(HashRing, VirtualNodesAreWhatEvensShares) {
  std::vector<int> share(8);
  for (const int owner : owners(HashRing(8, 1))) {
    ++share[static_cast<std::size_t>(owner)];
  }
  const auto [least, most] = std::minmax_element(share.begin(), share.end());
  EXPECT_GT(*most, 2 * *least);
}

TEST(HashRing, NeighboursAndEveryHashHaveAnOwner) {
  const HashRing ring(3, 2);  // gaps so long that the index has empty cells
  std::vector<int> share(3);
  for (std::uint64_t id = ~std::uint64_t{0} - kIds; id != 0; ++id) {
    ++share.at(static_cast<std::size_t>(ring.owner(id)));
  }
  EXPECT_GT(*std::min_element(share.begin(), share.end()), 0);
}

}  // namespace
}  // namespace gradwire::table
