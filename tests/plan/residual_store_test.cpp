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
  EXPECT_EQ(store.slice(owner, 107, 1), nullptr);
  EXPECT_EQ(*store.slice(owner, 7, 1), 0.0F);
}

}  // namespace
}  // namespace gradwire::plan
