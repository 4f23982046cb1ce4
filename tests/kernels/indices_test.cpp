// Compares reading the indices behind topk, as a thread block does it, with the host's decoder: round trips, and
// damage.
#include "kernels/device/indices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

using kernels::EliasFano;

struct Size {
  std::uint32_t count, selected;
};
// The sizes give runs of one word, of several, and of more than a warp has lanes; bitmaps; short tiles.
constexpr Size kSizes[] = {{4096, 41},   {4096, 1},  {4096, 410}, {4096, 704}, {4096, 1200}, {4096, 1500},
                           {4096, 4096}, {1409, 14}, {300, 3},    {100, 100},  {7, 3},       {1, 1}};

// The indices of a tile, 2 bytes of values and padding, as in frames.
struct Coded {
  explicit Coded(Size of) : size(of), words((EliasFano::bytes(of.count, of.selected) + 2 + 3) / 4) {}

  [[nodiscard]] std::uint8_t* bytes() { return reinterpret_cast<std::uint8_t*>(words.data()); }
  void flip(std::uint32_t bit) { bytes()[bit / 8] = static_cast<std::uint8_t>(bytes()[bit / 8] ^ 1U << (bit % 8)); }

  Size size;
  std::vector<std::uint32_t> words;
};

struct Read {
  bool good = true;
  std::vector<std::uint16_t> index;
  std::vector<int> times;  // how often each was given
};

Read read_on_device(Coded& coded) {
  const Size size = coded.size;
  Read read{true, std::vector<std::uint16_t>(size.selected), std::vector<int>(size.selected)};
  emulator::run("for_indices", 1, kernels::simt::kThreads, [&] {
    const kernels::IndexCode code = kernels::index_code(size.count, size.selected);
    const bool good = kernels::for_indices(coded.bytes(), size.count, code, [&](std::uint32_t j, std::uint32_t index) {
      ASSERT_LT(index, size.count);
      read.index.at(j) = static_cast<std::uint16_t>(index);
      ++read.times.at(j);
    });
    read.good = read.good && good;
  });
  return read;
}

// Returns indices drawn at random, or the last ones of the tile.
std::vector<std::uint16_t> draw(Size size, bool last, std::mt19937& random) {
  std::vector<std::uint16_t> all(size.count);
  for (std::uint32_t i = 0; i < size.count; ++i) {
    all[i] = static_cast<std::uint16_t>(i);
  }
  if (last) {
    return {all.end() - size.selected, all.end()};
  }
  std::vector<std::uint16_t> index;
  std::sample(all.begin(), all.end(), std::back_inserter(index), size.selected, random);
  return index;
}

TEST(Indices, ABlockFindsEachOnce) {
  std::mt19937 random(701);
  for (const Size size : kSizes) {
    for (int round = 0; round < 8; ++round) {
      Coded coded(size);
      const auto index = draw(size, round == 0, random);
      EliasFano::store(index.data(), size.count, size.selected, coded.bytes());
      const Read read = read_on_device(coded);
      ASSERT_TRUE(read.good) << size.count << " " << size.selected;
      ASSERT_EQ(read.index, index);
      ASSERT_EQ(read.times, std::vector<int>(size.selected, 1));
    }
  }
}

TEST(Indices, ABlockRefusesWhatTheHostRefuses) {
  std::mt19937 random(702);
  int refused = 0;
  int accepted = 0;
  for (const Size size : kSizes) {
    for (const bool last : {false, true}) {
      Coded coded(size);
      const auto index = draw(size, last, random);
      EliasFano::store(index.data(), size.count, size.selected, coded.bytes());
      const std::uint32_t bits = 8 * EliasFano::bytes(size.count, size.selected);
      for (std::uint32_t bit = 0; bit < bits; bit += (bits > 400 ? 11U : 1U) * kStepShare) {
        coded.flip(bit);
        std::vector<std::uint16_t> wanted(size.selected);
        const bool good = EliasFano::load(coded.bytes(), size.count, size.selected, wanted.data());
        const Read read = read_on_device(coded);
        ASSERT_EQ(read.good, good) << size.count << " " << size.selected << " bit " << bit;
        ASSERT_TRUE(!good || read.index == wanted) << size.count << " " << size.selected << " bit " << bit;
        ++(good ? accepted : refused);
        coded.flip(bit);
      }
    }
  }
  EXPECT_GT(refused, 400 / kStepShare);
  EXPECT_GT(accepted, 400 / kStepShare);
}

// The bits of two neighbours are the last of the 32 words that a warp holds at once, and the first of the next.
TEST(Indices, ABlockRefusesRepeatsAcrossGroupsOfWords) {
  const Size size{4096, 704};
  std::mt19937 random(703);
  Coded coded(size);
  const auto index = draw(size, true, random);
  EliasFano::store(index.data(), size.count, size.selected, coded.bytes());
  const kernels::IndexCode code = kernels::index_code(size.count, size.selected);
  std::uint32_t j = 1;
  while (code.place(index[j], j) != 1024) {
    ++j;
  }
  ASSERT_EQ(code.place(index[j - 1], j - 1), 1023U);
  ASSERT_EQ(index[j] % 4, 1U);
  coded.flip(code.run + code.low * j);  // now it equals the previous index
  std::vector<std::uint16_t> wanted(size.selected);
  ASSERT_FALSE(EliasFano::load(coded.bytes(), size.count, size.selected, wanted.data()));
  EXPECT_FALSE(read_on_device(coded).good);
}

}  // namespace
}  // namespace gradwire::test
