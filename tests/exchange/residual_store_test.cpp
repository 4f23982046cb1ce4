#include "exchange/residuals/residual_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>

namespace gradwire::exchange {
namespace {

TEST(ResidualStore, HandsOutOnlyWhatItKeeps) {
  ResidualStore store;
  const ResidualKey local{3, codec::EncodeSite::local};
  const ResidualKey owner{3, codec::EncodeSite::owner};
  EXPECT_TRUE(store.empty());
  EXPECT_EQ(store.slice(local, 0, 0), nullptr);

  store.keep(owner, 100, 50);
  EXPECT_FALSE(store.empty());
  EXPECT_EQ(store.slice(local, 100, 50), nullptr) << "another site";
  EXPECT_EQ(store.slice(ResidualKey{4, codec::EncodeSite::owner}, 100, 50), nullptr) << "another tensor";
  float* all = store.slice(owner, 100, 50);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(store.slice(owner, 110, 40), all + 10);
  EXPECT_EQ(store.slice(owner, 99, 2), nullptr);
  EXPECT_EQ(store.slice(owner, 149, 2), nullptr);
  EXPECT_EQ(store.slice(owner, 151, 0), nullptr);
  EXPECT_EQ(store.slice(owner, 101, std::numeric_limits<std::uint64_t>::max()), nullptr);

  all[7] = 1.5F;
  EXPECT_EQ(*store.slice(owner, 107, 1), 1.5F);
  store.keep(owner, 0, 10);
  EXPECT_EQ(*store.slice(owner, 107, 1), 1.5F) << "the kept value stays";
  EXPECT_EQ(*store.slice(owner, 7, 1), 0.0F);
}

TEST(ResidualStore, MovesWhatItKeptToAnotherRange) {
  ResidualStore store;
  const ResidualKey owner{0, codec::EncodeSite::owner};
  store.keep(owner, 10, 20);
  for (std::uint64_t i = 0; i < 20; ++i) {
    store.slice(owner, 10 + i, 1)[0] = static_cast<float>(i);
  }
  store.keep(owner, 15, 30);
  EXPECT_EQ(store.bytes(), 35 * sizeof(float));
  EXPECT_EQ(*store.slice(owner, 14, 1), 4.0F);
  EXPECT_EQ(*store.slice(owner, 15, 30), 5.0F);
  EXPECT_EQ(*store.slice(owner, 29, 1), 19.0F);
  EXPECT_EQ(*store.slice(owner, 30, 1), 0.0F);
  EXPECT_TRUE(store.holds(owner, 0, 12));   // 1 at element 11
  EXPECT_FALSE(store.holds(owner, 0, 11));  // element 10 is kept, but zero
}

TEST(ResidualStore, FoldsOnceAndScales) {
  ResidualStore store;
  const ResidualKey key{0, codec::EncodeSite::local};
  store.add(key, 2, {1, 2, 3}, 2.0F);
  store.multiply(0.5F);
  std::vector<float> values(6, 10.0F);
  store.fold(key, 0, 6, {.factor = 3.0}, codec::Working::f32, values.data());
  EXPECT_EQ(values, (std::vector<float>{10, 10, 13, 16, 19, 10}));
  std::vector<double> again(6, 10.0);
  store.fold(key, 0, 6, {.factor = 3.0}, codec::Working::f64, again.data());
  EXPECT_EQ(again, std::vector<double>(6, 10.0));
}

// undo() takes back all changes of a step to residuals, and commit() leaves the same values as a store that cannot
// undo. Mutations tried: commit() always swaps, or never copies back differences; undo() keeps written values;
// multiply() forgets the second buffer.
TEST(ResidualStore, UndoesAStep) {
  std::mt19937 random(7);
  const ResidualForm form{.dtypes = {ResidualDType::f32, ResidualDType::bf16}};
  constexpr codec::EncodeSite kAll[] = {codec::EncodeSite::local, codec::EncodeSite::intra, codec::EncodeSite::owner};
  const auto entries_of = [](const ResidualStore& store) {
    std::map<ResidualKey, std::map<std::uint64_t, std::vector<float>>> entries;
    for (const auto& [key, ranges] : store.entries()) {
      entries[key];
      for (const ResidualStore::Range& range : ranges) {
        for (std::uint64_t i = 0; i < range.values.size(); ++i) {
          entries[key][range.offset].push_back(range.values[i]);
        }
      }
    }
    return entries;
  };
  for (int round = 0; round < 300; ++round) {
    ResidualStore store(form), plain(form);  // `plain` cannot undo
    const auto each = [&](const auto& change) {
      change(store);
      change(plain);
    };
    const auto change = [&](bool by_encoders, std::uint64_t step) {
      const ResidualKey key{static_cast<std::uint32_t>(random() % 2), kAll[random() % 3]};
      const std::uint64_t offset = random() % 50;
      const std::uint64_t count = random() % 50;
      switch (by_encoders ? 5 : random() % 6) {
        case 0: each([&](ResidualStore& s) { s.keep(key, offset, count); }); break;
        case 1: each([&](ResidualStore& s) { s.drop(key); }); break;
        case 2: each([&](ResidualStore& s) { s.clear_moved(key.tensor); }); break;
        case 3:
          each([&](ResidualStore& s) {
            s.add(key, offset, ResidualStore::Values(std::vector<float>(count, 0.5F)), 3.0F);
          });
          break;
        case 4:
          each([&](ResidualStore& s) {
            std::vector<float> values(count);
            s.fold(key, offset, count, {.factor = 2.0}, codec::Working::f32, values.data());
          });
          break;
        default:
          if (std::vector<float> values(count); store.load(key, offset, count, values.data()) != nullptr) {
            std::generate(values.begin(), values.end(), [&] { return static_cast<float>(random() % 1000); });
            each([&](ResidualStore& s) { s.write(key, offset, count, values.data(), step); });
          }
      }
    };
    each([](ResidualStore& s) { s.mark_moved(0); });
    for (int i = 0; i < 20; ++i) {
      change(false, 0);
    }
    store.remember();
    for (int step = 0; step < 8; ++step) {
      SCOPED_TRACE("round " + std::to_string(round) + ", step " + std::to_string(step));
      const ResidualStore before = plain;
      const bool by_encoders = random() % 2 == 0;
      for (int i = 0; i < 20; ++i) {
        change(by_encoders, static_cast<std::uint64_t>(step));
      }
      if (random() % 2 == 0) {
        store.commit();
      } else {
        store.undo();
        plain = before;
      }
      ASSERT_EQ(entries_of(store), entries_of(plain));
      ASSERT_EQ(store.moved(0), plain.moved(0));
      ASSERT_EQ(store.moved(1), plain.moved(1));
      if (random() % 4 == 0) {
        each([](ResidualStore& s) { s.multiply(0.7F); });
      }
    }
  }
}

// Steps that write the same ranges as the step before swap two buffers.
TEST(ResidualStore, CommitSwaps) {
  ResidualStore store;
  const ResidualKey key{0, codec::EncodeSite::local};
  store.keep(key, 0, 100);
  store.remember();
  const std::vector<float> values(60, 1.0F);
  const float* first = store.slice(key, 0, 100);
  const float* second = nullptr;
  for (int step = 0; step < 4; ++step) {
    store.write(key, 70, 30, values.data());
    store.write(key, 0, 20, values.data());
    store.write(key, 20, 40, values.data());
    store.commit();
    second = step == 0 ? store.slice(key, 0, 100) : second;
    EXPECT_EQ(store.slice(key, 0, 100), step % 2 == 0 ? second : first);
    EXPECT_EQ(*store.slice(key, 60, 1), 0.0F) << "nothing was written there";
    EXPECT_EQ(*store.slice(key, 59, 1), 1.0F);
  }
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace gradwire::exchange
