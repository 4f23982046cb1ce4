// Tests the index, the cache, and the merging of the callers' rows.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "gradwire/error.hpp"
#include "table/flat_index.hpp"
#include "table/merge.hpp"
#include "table/row_cache.hpp"

namespace gradwire::table {
namespace {

TEST(FlatIndex, DoesWhatAMapDoes) {
  std::mt19937_64 random(5);
  FlatIndex index;
  std::map<std::uint64_t, std::uint32_t> expected;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    const std::uint64_t id = random() % 400;  // long probes, many deletions
    if (expected.contains(id)) {
      index.erase(id);
      expected.erase(id);
    } else {
      index.insert(id, i);
      expected[id] = i;
    }
    ASSERT_EQ(index.count(), expected.size());
    const std::uint64_t asked = random() % 400;
    const auto at = expected.find(asked);
    ASSERT_EQ(index.find(asked), at == expected.end() ? FlatIndex::kNone : at->second);
  }
  for (const auto& [id, place] : expected) {
    ASSERT_EQ(index.find(id), place);
  }
}

TEST(RowCache, KeepsTheMostRecentlyUsedWithinItsBound) {
  const std::uint64_t row = RowCache::bytes_per_row(2);
  RowCache cache(3 * row + row / 2, 2);
  ASSERT_EQ(cache.capacity(), 3U);
  const auto put = [&](std::uint64_t id) {
    const float values[] = {static_cast<float>(id), -static_cast<float>(id)};
    return cache.put(id, values);
  };
  put(1);
  put(2);
  put(3);
  cache.touch(*cache.find(1));
  put(4);  // evicts 2
  EXPECT_EQ(cache.find(2), nullptr);
  ASSERT_NE(cache.find(1), nullptr);
  EXPECT_EQ(cache.values(*cache.find(1))[1], -1.0F);
  put(3);  // used again, not added
  put(5);  // evicts 1
  EXPECT_EQ(cache.find(1), nullptr);
  EXPECT_NE(cache.find(3), nullptr);
  EXPECT_NE(cache.find(4), nullptr);
  EXPECT_EQ(cache.count(), 3U);
  EXPECT_LE(cache.bytes(), 3 * row + row / 2);
  cache.clear();
  EXPECT_EQ(cache.find(3), nullptr);
  EXPECT_EQ(cache.count(), 0U);
  put(6);
  EXPECT_EQ(cache.values(*cache.find(6))[0], 6.0F);
}

TEST(RowCache, AgreesWithAListUnderRandomUse) {
  constexpr std::uint32_t kCapacity = 20;
  RowCache cache(kCapacity * RowCache::bytes_per_row(1), 1);
  std::vector<std::uint64_t> newest_last;
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t id = random() % 50;
    const auto at = std::find(newest_last.begin(), newest_last.end(), id);
    RowCache::Entry* entry = cache.find(id);
    ASSERT_EQ(entry != nullptr, at != newest_last.end());
    if (at != newest_last.end()) {
      newest_last.erase(at);
    }
    if (entry != nullptr && i % 2 == 0) {
      cache.touch(*entry);
    } else {
      const auto value = static_cast<float>(i);
      cache.put(id, &value);
    }
    newest_last.push_back(id);
    if (newest_last.size() > kCapacity) {
      newest_last.erase(newest_last.begin());
    }
  }
}

TEST(RowCache, WithoutRoomItHoldsNothing) {
  RowCache cache(10, 64);
  const std::vector<float> values(64);
  EXPECT_EQ(cache.put(1, values.data()), nullptr);
  EXPECT_EQ(cache.find(1), nullptr);
}

TEST(Merge, SumsDuplicatesInTheirOrder) {
  const std::vector<std::uint64_t> ids{7, 2, 7, 7, 0};
  const MergedIds merged = merge_ids(ids, 8, "push");
  EXPECT_EQ(merged.ids, (std::vector<std::uint64_t>{0, 2, 7}));
  EXPECT_EQ(merged.place, (std::vector<std::uint32_t>{2, 1, 2, 2, 0}));
  const std::vector<float> rows{1, 10, 2, 20, 3, 30, 4, 40, 5, 50};
  EXPECT_EQ(add_rows(merged, rows, 2), (table::Floats{5, 50, 2, 20, 8, 80}));
  EXPECT_EQ(last_rows(merged, rows, 2), (table::Floats{5, 50, 2, 20, 4, 40}));
}

TEST(Merge, LeavesAscendingIdsAsTheyAre) {
  const std::vector<std::uint64_t> ids{1, 3, 4};
  const MergedIds merged = merge_ids(ids, 5, "push");
  EXPECT_TRUE(merged.as_given());
  EXPECT_EQ(merged.ids, ids);
  EXPECT_EQ(merged.place_of(2), 2U);
  EXPECT_TRUE(merge_ids({}, 5, "push").ids.empty());
  EXPECT_THROW(static_cast<void>(merge_ids(ids, 4, "push")), Error);
}

}  // namespace
}  // namespace gradwire::table
