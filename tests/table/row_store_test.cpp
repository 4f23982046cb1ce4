// Tests the parts that both kinds of tables use: rows that one rank holds, and rows with their ids as bytes.
#include "table/row_store.hpp"

#include <gtest/gtest.h>

#include "table/row_block.hpp"

namespace gradwire::table {
namespace {

using Ids = std::vector<std::uint64_t>;

const Ids kTwelveIds{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
const std::vector<std::uint32_t> kProcesses{2, 3, 7};

RowStore store_of(int rank, std::uint32_t copies, const char* codec = "exact") {
  RowStore store({.name = "t", .rows = 12, .width = 2, .learning_rate = 1, .codec = codec});
  store.enter(ReplicaRing(kProcesses, {}, copies), rank);
  return store;
}

TEST(RowStore, EveryRowHasItsHoldersAndOneOwner) {
  for (const std::uint32_t copies : {1U, 2U, 3U}) {
    for (const std::uint64_t id : kTwelveIds) {
      std::uint32_t holders = 0;
      int owners = 0;
      for (int rank = 0; rank < 3; ++rank) {
        const RowStore store = store_of(rank, copies);
        holders += store.holds(id) ? 1 : 0;
        owners += store.owns(id) ? 1 : 0;
        EXPECT_TRUE(store.holds(id) || !store.owns(id));
        EXPECT_EQ(store.first_not_held(std::span(&id, 1)).has_value(), !store.holds(id));
      }
      EXPECT_EQ(holders, copies);
      EXPECT_EQ(owners, 1);
    }
  }
  RowStore alone = store_of(0, 1);
  EXPECT_EQ(alone.first_not_held({}), std::nullopt);
  alone.enter(ReplicaRing(1), 0);
  EXPECT_EQ(alone.first_not_held(kTwelveIds), std::nullopt) << "the world has one rank";
}

// A Table's ring has one copy, placed by the ranks' numbers.
TEST(RowStore, AWorldOfRanksIsOneOfTheirNumbers) {
  const std::vector<std::uint32_t> numbers{0, 1, 2, 3, 4};
  const ReplicaRing ranks(5);
  const ReplicaRing keys(numbers, {}, 1);
  for (std::uint64_t id = 0; id < 1000; ++id) {
    EXPECT_EQ(ranks.holders(id)[0], keys.holders(id)[0]);
    EXPECT_EQ(ranks.holders(id)[0], HashRing(5).owner(id));
  }
}

TEST(RowStore, RowsThatReplaceOthersCountAsChanged) {
  RowStore store = store_of(0, 3);
  const std::vector<float> gradients{1, 2, 3, 4};
  store.shard().apply(Ids{4, 9}, gradients.data());
  const std::uint64_t before = store.shard().sequence();
  Shard rest = store.empty_shard();
  const Ids ids = store.shard().ids();
  EXPECT_EQ(ids, (Ids{4, 9}));
  store.shard().visit(std::span(ids).last(1), [&](const Shard::Row& row) { rest.restore(row); });
  store.replace(std::move(rest));
  EXPECT_EQ(store.statistics({}).rows_held, 1U);
  EXPECT_TRUE(store.shard().find(4).empty());
  EXPECT_EQ(store.shard().find(9)[1], -4);
  EXPECT_GT(store.shard().version(9), before);
  EXPECT_GT(store.shard().version(4), before) << "a removed row has changed";
}

TEST(RowBlock, ComesBackAndNothingElseDoes) {
  RowStore store = store_of(0, 3, "bf16");
  const Ids ids{0, 4, 11};
  const std::vector<float> values{1, -2, 0.5F, 4, 8, -16};
  wire::Bytes bytes;
  put_rows(
      ids, store.codec(), [&](std::size_t i) { return values.data() + 2 * i; }, bytes);
  store.shard().assign(ids, values.data());
  wire::Bytes rows;
  store.encode(ids, rows);

  wire::ByteReader in(bytes, "a message");
  const RowBlock block = take_rows(in, ids.size(), 12, store.codec());
  in.expect_end();
  EXPECT_EQ(block.ids, ids);
  EXPECT_TRUE(std::ranges::equal(block.rows, rows)) << "held rows are encoded like those of a message";
  for (std::size_t left = 0; left < bytes.size(); ++left) {
    wire::ByteReader cut{std::span(bytes).first(left), "a message"};
    EXPECT_THROW(static_cast<void>(take_rows(cut, ids.size(), 12, store.codec())), Error);
  }
  wire::ByteReader small(bytes, "a message");
  EXPECT_THROW(static_cast<void>(take_rows(small, ids.size(), 11, store.codec())), Error) << "id 11 of 11 rows";
}

}  // namespace
}  // namespace gradwire::table
