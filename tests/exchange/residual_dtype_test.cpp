// Residuals that are narrower than f32: nothing is lost in the mean, and every bit is a function of step, tensor, site,
// element and rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exchange/residuals/bucket_residuals.hpp"
#include "exchange/residuals/residual_store.hpp"

namespace gradwire::exchange {
namespace {

using codec::EncodeSite;

constexpr EncodeSite kSites[] = {EncodeSite::local, EncodeSite::intra, EncodeSite::owner};
constexpr std::uint32_t kTile = codec::kTileElements;

ResidualForm form_of(ResidualDType dtype, std::uint32_t tensors, std::uint32_t seed = ResidualForm::kSeed) {
  return {.dtypes = std::vector<ResidualDType>(tensors, dtype), .seed = seed};
}

// An encoder that sends nothing: a step adds its gradient to the residual.
void accumulate(BucketResiduals& residuals, EncodeSite site, std::uint64_t first, std::uint32_t count,
                const float* gradient) {
  float room[kTile];
  const float* before = residuals.load(site, first, count, room);
  float* after = residuals.target(site, first, count, room);
  for (std::uint32_t i = 0; i < count; ++i) {
    after[i] = before[i] + gradient[i];
  }
  if (after == room) {
    residuals.store(site, first, count, room);
  }
}

// A residual that waits for many steps takes in gradients that are far smaller than its last place. Rounding to nearest
// would lose all of them from some step on, here a third of the sum.
TEST(ResidualDtype, NothingIsLostInTheMeanAtAnySite) {
  const std::uint32_t seed = std::random_device{}();
  constexpr std::uint64_t kCount = 3 * kTile + 77;
  constexpr int kSteps = 400;
  using Kept = std::pair<ResidualDType, EncodeSite>;
  for (const auto& [dtype, site] :
       {Kept{ResidualDType::bf16, EncodeSite::local}, Kept{ResidualDType::bf16, EncodeSite::intra},
        Kept{ResidualDType::bf16, EncodeSite::owner}, Kept{ResidualDType::int8, EncodeSite::local},
        Kept{ResidualDType::int8, EncodeSite::intra}, Kept{ResidualDType::int8, EncodeSite::owner}}) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", site " + std::to_string(static_cast<int>(site)));
    ResidualStore store(form_of(dtype, 1, seed));
    store.keep({0, site}, 0, kCount);
    EXPECT_EQ(store.bytes(), dtype == ResidualDType::bf16 ? 2 * kCount : (kCount + 63) / 64 * 65);
    std::mt19937 random(seed);
    std::vector<float> gradient(kCount);
    std::generate(gradient.begin(), gradient.end(),
                  [&] { return static_cast<float>(1000 + random() % 1000) * (random() % 4 == 0 ? -1e-6F : 1e-6F); });
    for (int step = 0; step < kSteps; ++step) {
      BucketResiduals residuals(store, {{0, 0, kCount}}, 1, static_cast<std::uint64_t>(step));
      for (std::uint64_t first = 0; first < kCount; first += kTile) {
        accumulate(residuals, site, first, static_cast<std::uint32_t>(std::min<std::uint64_t>(kTile, kCount - first)),
                   gradient.data() + first);
      }
    }
    std::vector<double> sum(kCount);
    store.fold({0, site}, 0, kCount, {}, codec::Working::f64, sum.data());
    // A step t adds an error of at most half of the last place of t x gradient, or in int8 of t times the largest
    // gradient, with a mean of 0.
    double error = 0;
    double variance = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const double wanted = static_cast<double>(kSteps) * static_cast<double>(gradient[i]);
      const double bound = dtype == ResidualDType::bf16 ? std::abs(wanted) * std::ldexp(std::sqrt(kSteps / 3.0), -8)
                                                        : 2e-3 * kSteps * std::ldexp(std::sqrt(kSteps / 3.0), -7);
      EXPECT_NEAR(sum[i], wanted, 7 * bound);
      error += std::abs(sum[i]) - std::abs(wanted);
      variance += bound * bound;
    }
    EXPECT_LT(std::abs(error), 5 * std::sqrt(variance)) << "of " << kSteps * 1.5e-3 * kCount;
  }
}

using Bits = std::map<std::tuple<std::uint32_t, EncodeSite, std::uint64_t>, std::uint32_t>;

// The stored bits of every element, whatever ranges they lie in.
Bits bits_of(const ResidualStore& store) {
  Bits bits;
  for (const auto& [key, ranges] : store.entries()) {
    for (const ResidualStore::Range& range : ranges) {
      for (std::uint64_t i = 0; i < range.values.size(); ++i) {
        bits[{key.tensor, key.site, range.offset + i}] = kernels::bits_as<std::uint32_t>(range.values[i]);
      }
    }
  }
  return bits;
}

TEST(ResidualDtype, AnotherBucketLayoutAndUndoneStepsGiveTheSameBits) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::uint64_t> counts{5000, 3, 9000};
  ResidualStore fused(form_of(ResidualDType::bf16, 3));
  ResidualStore apart(form_of(ResidualDType::bf16, 3));
  for (std::uint32_t tensor = 0; tensor < 3; ++tensor) {
    for (const EncodeSite site : kSites) {
      fused.keep({tensor, site}, 0, counts[tensor]);
      apart.keep({tensor, site}, counts[tensor] / 2, counts[tensor] - counts[tensor] / 2);  // two ranges
      apart.keep({tensor, site}, 0, counts[tensor] / 2);
    }
  }
  apart.remember();
  for (std::uint64_t step = 0; step < 6; ++step) {
    std::vector<std::vector<float>> gradients;
    for (const std::uint64_t count : counts) {
      gradients.emplace_back(count);
      for (float& x : gradients.back()) {
        x = std::normal_distribution<float>()(random);
      }
    }
    // One bucket of all tensors, in reverse order of add, a tile at a time.
    std::vector<float> all;
    std::vector<BucketPart> parts;
    for (std::size_t tensor = 3; tensor-- > 0;) {
      parts.push_back({tensor, all.size(), counts[tensor]});
      all.insert(all.end(), gradients[tensor].begin(), gradients[tensor].end());
    }
    BucketResiduals whole(fused, parts, 0.9, step);
    for (const EncodeSite site : kSites) {
      for (std::uint64_t first = 0; first < all.size(); first += kTile) {
        accumulate(whole, site, first, static_cast<std::uint32_t>(std::min<std::uint64_t>(kTile, all.size() - first)),
                   all.data() + first);
      }
    }
    // A bucket for each tensor, in pieces of any size, in a step that is made twice.
    for (int attempt = 0; attempt < 2; ++attempt) {
      for (std::size_t tensor = 0; tensor < 3; ++tensor) {
        BucketResiduals one(apart, {{tensor, 0, counts[tensor]}}, 0.9, step);
        for (const EncodeSite site : kSites) {
          for (std::uint64_t first = 0; first < counts[tensor];) {
            const std::uint64_t half = counts[tensor] / 2;
            const std::uint64_t left = (first < half ? half : counts[tensor]) - first;
            const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(1 + random() % kTile, left));
            accumulate(one, site, first, count, gradients[tensor].data() + first);
            first += count;
          }
        }
      }
      attempt == 0 ? apart.undo() : apart.commit();
    }
    ASSERT_TRUE(bits_of(fused) == bits_of(apart)) << "step " << step;
    EXPECT_EQ(apart.second_bytes(), apart.bytes());
  }
}

// Otherwise errors of the same sign would add up over steps, or over ranks.
TEST(ResidualDtype, EveryUseOfAnElementIsRoundedByItself) {
  constexpr std::uint64_t kCount = 1U << 16;
  std::vector<float> values(kCount, 1.00390625F);  // halfway between two values
  const auto ups = [&](std::uint32_t tensor, EncodeSite site, std::uint64_t step, std::uint32_t rank) {
    ResidualForm form = form_of(ResidualDType::bf16, 2);
    form.rank = rank;
    ResidualStore store(form);
    store.keep({tensor, site}, 0, kCount);
    store.write({tensor, site}, 0, kCount, values.data(), step);
    std::vector<bool> up;
    for (std::uint64_t i = 0; i < kCount; ++i) {
      up.push_back(store.entries().begin()->second[0].values[i] > 1);
    }
    return up;
  };
  const std::vector<std::vector<bool>> all{ups(0, EncodeSite::local, 0, 0),          ups(1, EncodeSite::local, 0, 0),
                                           ups(0, EncodeSite::owner, 0, 0),          ups(0, EncodeSite::local, 1, 0),
                                           ups(0, EncodeSite::local, 2, 0),          ups(0, EncodeSite::local, 0, 1),
                                           ups(0, EncodeSite::local, 1ULL << 32, 0), ups(0, EncodeSite::local, 0, 2)};
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      double equal = 0;
      for (std::uint64_t i = 0; i < kCount; ++i) {
        equal += all[a][i] == all[b][i] ? 1 : 0;
      }
      EXPECT_NEAR(equal / kCount, 0.5, 5 * 0.5 / std::sqrt(kCount)) << a << " and " << b;
    }
  }
  EXPECT_EQ(ups(0, EncodeSite::local, 1, 0), all[3]) << "the same step, made again";
}

TEST(ResidualDtype, IndicesBeyond32BitsHaveTheirOwnBits) {
  const ResidualRounding rounding{.seed = 1, .tensor = 2, .site = EncodeSite::local};
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 32) - 50;
  const std::vector<float> values(100, 1.00390625F);
  ResidualValues at_once(100, ResidualDType::bf16), apart(100, ResidualDType::bf16);
  at_once.store(0, 100, values.data(), rounding, kFirst);
  apart.store(0, 50, values.data(), rounding, kFirst);
  apart.store(50, 50, values.data(), rounding, kFirst + 50);
  EXPECT_EQ(at_once, apart);
  ResidualValues wrapped(50, ResidualDType::bf16);
  wrapped.store(0, 50, values.data(), rounding, 0);
  EXPECT_FALSE(wrapped == at_once.part(50, 50));
}

// Tensors of any size share a bucket, whose tiles are written in any order; a rank may hold a part of a tensor only,
// and may make a step again. Mutation tried: blocks begin where a tensor begins.
TEST(ResidualDtype, BlocksLieInTilesAndTheirBitsDependOnTheBucketAlone) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::uint64_t> counts{5000, 3, 90, 9000};
  std::vector<BucketPart> parts;
  std::uint64_t all = 0;
  for (std::size_t tensor = counts.size(); tensor-- > 0;) {
    parts.push_back({tensor, all, counts[tensor]});
    all += counts[tensor];
  }
  const std::uint64_t half = 2 * kTile;
  const ResidualUse whole{.keeps = {.local = true}, .local = {0, all}};
  const ResidualUse first{.keeps = {.local = true, .owner = true}, .local = {0, all}, .owned = {0, half}};
  const ResidualUse second{.keeps = {.local = true, .owner = true}, .local = {0, all}, .owned = {half, all - half}};
  ResidualStore forwards(form_of(ResidualDType::int8, 4));
  ResidualStore backwards(form_of(ResidualDType::int8, 4));
  backwards.remember();
  ResidualStore owners[2] = {ResidualStore(form_of(ResidualDType::int8, 4)),
                             ResidualStore(form_of(ResidualDType::int8, 4))};
  for (std::uint64_t step = 0; step < 5; ++step) {
    std::vector<float> gradient(all);
    std::generate(gradient.begin(), gradient.end(), [&] { return std::normal_distribution<float>()(random); });
    const auto encode = [&](ResidualStore& store, const ResidualUse& use, EncodeSite site, bool in_order,
                            const ResidualUse::Range& range) {
      BucketResiduals residuals(store, parts, 1, step);
      residuals.begin(use);
      std::vector<std::uint64_t> tiles;
      for (std::uint64_t tile = range.first; tile < range.first + range.count; tile += kTile) {
        tiles.push_back(tile);
      }
      if (!in_order) {
        std::shuffle(tiles.begin(), tiles.end(), random);
      }
      for (const std::uint64_t tile : tiles) {
        accumulate(residuals, site, tile, static_cast<std::uint32_t>(std::min<std::uint64_t>(kTile, all - tile)),
                   gradient.data() + tile);
      }
    };
    encode(forwards, whole, EncodeSite::local, true, whole.local);
    encode(backwards, whole, EncodeSite::local, false, whole.local);
    backwards.undo();
    encode(backwards, whole, EncodeSite::local, false, whole.local);
    const bool first_of_all = step == 0;  // it makes the ranges, in place
    EXPECT_EQ(bits_of(backwards) == bits_of(forwards), first_of_all) << "before it is committed";
    backwards.commit();
    ASSERT_TRUE(bits_of(backwards) == bits_of(forwards)) << "step " << step;
    EXPECT_EQ(backwards.second_bytes(), first_of_all ? 0 : backwards.bytes()) << "a key was copied whole";
    encode(owners[0], first, EncodeSite::owner, true, first.owned);
    encode(owners[1], second, EncodeSite::owner, false, second.owned);
  }
  // A shard has the blocks of the whole.
  ResidualStore together(form_of(ResidualDType::int8, 4));
  BucketResiduals(together, parts).begin({.keeps = {.owner = true}, .owned = {0, all}});
  for (const ResidualStore& owner : owners) {
    for (const auto& [key, ranges] : owner.entries()) {
      for (const ResidualStore::Range& range : ranges) {
        if (key.site == EncodeSite::owner) {
          together.add(key, range.offset, range.values, 1);
        }
      }
    }
  }
  const Bits joined = bits_of(together);
  for (const ResidualStore& owner : owners) {
    for (const auto& [element, bits] : bits_of(owner)) {
      if (std::get<1>(element) == EncodeSite::owner) {
        ASSERT_EQ(joined.at(element), bits) << "a block that lies in one shard is not rounded again";
      }
    }
  }
}

// After a change of the plan or the world, blocks begin elsewhere. Values are rounded once more then, in the mean to
// themselves.
TEST(ResidualDtype, BlocksThatMoveLoseNothingInTheMean) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::uint64_t kCount = 40'000;
  const ResidualKey key{0, EncodeSite::local};
  std::vector<float> values(kCount);
  std::generate(values.begin(), values.end(), [&] { return std::normal_distribution<float>()(random); });
  for (const bool undoes : {false, true}) {
    ResidualStore store(form_of(ResidualDType::int8, 1, seed));
    store.keep(key, 0, kCount, 5);
    store.write(key, 0, kCount, values.data(), 1);
    const Bits before = bits_of(store);
    const float* room = nullptr;
    std::vector<float> old(kCount), now(kCount);
    room = store.load(key, 0, kCount, old.data());
    ASSERT_EQ(room, old.data());
    if (undoes) {
      store.remember();
    }
    store.keep(key, 0, kCount, 5 + 64);
    EXPECT_EQ(bits_of(store), before) << "the same blocks";
    store.keep(key, 0, kCount, 11);
    static_cast<void>(store.load(key, 0, kCount, now.data()));
    double error = 0, squares = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const double one = static_cast<double>(now[i]) - static_cast<double>(old[i]);
      ASSERT_LE(std::abs(one), 5.0 / 63) << "a step of the scale";
      error += one;
      squares += one * one;
    }
    EXPECT_GT(squares, 0);
    EXPECT_LT(std::abs(error), 6 * std::sqrt(squares));
    store.write(key, 100, 7, values.data(), 2);  // a part of a block
    static_cast<void>(store.load(key, 0, kCount, old.data()));
    EXPECT_TRUE(std::equal(old.begin() + 200, old.end(), now.begin() + 200)) << "other blocks stay";
    if (undoes) {
      store.undo();
      EXPECT_EQ(bits_of(store), before);
    }
  }
}

TEST(ResidualDtype, AnotherFormKeepsTheResiduals) {
  const ResidualKey key{0, EncodeSite::owner};
  ResidualStore store(form_of(ResidualDType::bf16, 1));
  store.add(key, 5, {1, -2, 0.1F, 3e-39F}, 1);
  const std::uint64_t narrow = store.bytes();
  const Bits before = bits_of(store);
  store.remember();
  store.set_form({});
  EXPECT_EQ(store.bytes(), 2 * narrow);
  EXPECT_EQ(bits_of(store), before) << "f32 holds every bf16";
  store.set_form(form_of(ResidualDType::bf16, 1));
  EXPECT_EQ(bits_of(store), before);
  EXPECT_EQ(store.bytes(), narrow);
  ResidualStore other(form_of(ResidualDType::bf16, 1));
  for (const ResidualStore::Range& range : store.entries().at(key)) {
    other.add(key, range.offset, range.values, 1);
  }
  EXPECT_EQ(bits_of(other), before) << "residuals that are carried over are not rounded again";
  EXPECT_TRUE(other.holds(key, 8, 1));
  other.multiply(0.5F);
  float values[] = {10, 10, 10, -0.0F};
  other.fold(key, 5, 4, {.decay = 0.5F, .factor = 4}, codec::Working::f32, values);
  EXPECT_EQ(values[0], 11);
  EXPECT_EQ(values[1], 8);
  EXPECT_FALSE(other.holds(key, 0, 100));
}

}  // namespace
}  // namespace gradwire::exchange
