#include "plan/residual_store.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace gradwire::plan {
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
  EXPECT_EQ(*store.slice(owner, 107, 1), 1.5F) << "what was kept stays";
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
  store.fold(key, 0, 6, 3.0, codec::Working::f32, values.data());
  EXPECT_EQ(values, (std::vector<float>{10, 10, 13, 16, 19, 10}));
  std::vector<double> again(6, 10.0);
  store.fold(key, 0, 6, 3.0, codec::Working::f64, again.data());
  EXPECT_EQ(again, std::vector<double>(6, 10.0));
}

}  // namespace
}  // namespace gradwire::plan
