// Tests copies of rows: they are on different ranks and nodes, and stay in place when other ranks come and go.
#include "table/replica_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace gradwire::table {
namespace {

constexpr std::uint64_t kSomeIds = 5000;
using Keys = std::vector<std::uint32_t>;

Keys keys_of(const ReplicaRing& ring, const Keys& keys, std::uint64_t id) {
  Keys held;
  for (const int rank : ring.holders(id)) {
    held.push_back(keys[static_cast<std::size_t>(rank)]);
  }
  return held;
}

TEST(ReplicaRing, HoldersDifferAndTheFirstIsTheOwner) {
  const Keys keys{0, 1, 2, 3, 4};
  const ReplicaRing ring(keys, {}, 3);
  const HashRing owners(5);
  for (std::uint64_t id = 0; id < kSomeIds; ++id) {
    const std::span<const int> holders = ring.holders(id);
    ASSERT_EQ(std::set<int>(holders.begin(), holders.end()).size(), 3U);
    ASSERT_EQ(holders[0], owners.owner(id));
  }
  EXPECT_EQ(ReplicaRing(Keys{7, 9}, {}, 3).holders(1).size(), 2U) << "there are no more holders than ranks";
}

// Mutation tried: places follow from ranks instead of keys.
TEST(ReplicaRing, WhoStaysKeepsItsRows) {
  const Keys before{0, 1, 2, 3, 4};
  const Keys after{0, 1, 3, 4, 9};  // 2 has ended, and 9 has joined
  const Keys left{0, 1, 3, 4};
  const ReplicaRing old_ring(before, {}, 2);
  const ReplicaRing new_ring(after, {}, 2);
  const ReplicaRing small(left, {}, 2);
  std::size_t moved = 0;
  for (std::uint64_t id = 0; id < kSomeIds; ++id) {
    Keys held = keys_of(old_ring, before, id);
    const Keys now = keys_of(small, left, id);
    for (const std::uint32_t key : held) {
      ASSERT_TRUE(key == 2 || std::ranges::find(now, key) != now.end()) << "no row leaves a rank that stays";
    }
    const Keys with_newcomer = keys_of(new_ring, after, id);
    for (const std::uint32_t key : with_newcomer) {
      ASSERT_TRUE(key == 9 || std::ranges::find(now, key) != now.end()) << "no row moves to a rank that stays";
      moved += key == 9 ? 1 : 0;
    }
  }
  EXPECT_NEAR(static_cast<double>(moved) / kSomeIds, 2.0 / 5, 0.1);
}

TEST(ReplicaRing, CopiesGoToDifferentNodes) {
  const Keys keys{0, 1, 2, 3, 4, 5};
  const std::vector<std::uint32_t> nodes{0, 0, 7, 7, 7, 3};
  const auto node = [&](int rank) { return nodes[static_cast<std::size_t>(rank)]; };
  const ReplicaRing ring(keys, nodes, 2);
  const ReplicaRing more(keys, nodes, 4);  // more copies than nodes
  for (std::uint64_t id = 0; id < kSomeIds; ++id) {
    ASSERT_NE(node(ring.holders(id)[0]), node(ring.holders(id)[1]));
    const std::span<const int> holders = more.holders(id);
    ASSERT_EQ(std::set<int>(holders.begin(), holders.end()).size(), 4U);
    ASSERT_EQ((std::set<std::uint32_t>{node(holders[0]), node(holders[1]), node(holders[2])}).size(), 3U);
  }
}

// Mutation tried: nodes always count; then that rank holds every row.
TEST(ReplicaRing, OneAloneOnItsNodeDoesNotHoldAll) {
  const Keys keys{0, 1, 2, 3, 4};
  const ReplicaRing ring(keys, std::vector<std::uint32_t>{0, 0, 0, 0, 1}, 2);
  int held = 0;
  for (std::uint64_t id = 0; id < kSomeIds; ++id) {
    held += std::ranges::count(ring.holders(id), 4);
  }
  EXPECT_NEAR(static_cast<double>(held) / kSomeIds, 2.0 / 5, 0.1);
}

TEST(ReplicaRing, TellsWhatIsLost) {
  const ReplicaRing ring(Keys{0, 1, 2, 3}, {}, 2);
  EXPECT_EQ(ring.lost({true, false, true, true}), 0);
  EXPECT_NEAR(ring.lost({true, false, false, true}), 1.0 / 6, 0.05) << "of six pairs, one loses the row";
  EXPECT_EQ(ring.lost({false, false, false, false}), 1);
}

}  // namespace
}  // namespace gradwire::table
