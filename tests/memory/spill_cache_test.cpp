// Arrays that spill to a file, against the same in memory: any order of use, limits, rounds, failures.
#include "memory/spill_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "file_backends.hpp"
#include "gradwire/error.hpp"

namespace gradwire::memory {
namespace {

using Model = std::vector<std::byte>;

constexpr std::size_t kTile = std::size_t{16} << 10;
constexpr std::size_t kMebibyte = std::size_t{1} << 20;

void fill(std::span<std::byte> bytes, std::mt19937& random) {
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
}

// Passes over an array as an encoder does: it loads, checks and stores one tile after the other.
void pass(SpilledBytes& array, Model& model, std::mt19937& random) {
  std::vector<std::byte> tile(kTile);
  for (std::size_t first = 0; first < array.size(); first += kTile) {
    const std::span some = std::span(tile).first(std::min(kTile, array.size() - first));
    array.load(first, some);
    ASSERT_EQ(std::memcmp(some.data(), model.data() + first, some.size()), 0) << first;
    some[random() % some.size()] ^= std::byte{0x5a};
    array.store(first, some);
    std::copy(some.begin(), some.end(), model.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

void expect_equal(const SpilledBytes& array, const Model& model) {
  std::vector<std::byte> all(array.size());
  array.look(0, all);
  EXPECT_EQ(all, model);
}

class SpillCacheTest : public OverFileBackends {
 protected:
  [[nodiscard]] std::shared_ptr<SpillCache> cache(std::uint64_t memory, const MakeFileRequests& make = {}) const {
    return std::make_shared<SpillCache>(
        PageFileOptions{.folder = folder(), .holds = "residuals", .backend = GetParam()}, memory, make);
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, SpillCacheTest, kFileBackends, backend_name);

TEST_P(SpillCacheTest, EveryOrderOfUseGivesWhatMemoryGives) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const std::uint64_t memory : {kMebibyte / 2, 2 * kMebibyte, 64 * kMebibyte}) {
    const std::shared_ptr<SpillCache> all = cache(memory);
    std::vector<SpilledBytes> arrays;
    std::vector<Model> models;
    for (int step = 0; step < 400; ++step) {
      const std::uint32_t what = random() % 12;
      const std::size_t i = arrays.empty() ? 0 : random() % arrays.size();
      if (arrays.size() < 8 || (what == 0 && arrays.size() < 16)) {
        const std::size_t bytes = 1 + random() % (random() % 2 == 0 ? 5000 : 900'000);
        arrays.emplace_back(all, bytes);
        models.emplace_back(bytes);
      } else if (what == 1) {
        arrays.push_back(arrays[i]);
        models.push_back(Model(models[i]));
      } else if (what == 2) {
        std::swap(arrays[i], arrays.back());
        std::swap(models[i], models.back());
        arrays.pop_back();
        models.pop_back();
      } else if (what == 3) {
        const std::size_t first = random() % arrays[i].size();
        const std::size_t bytes = random() % (arrays[i].size() - first + 1);
        arrays[i].fill_zero(first, bytes);
        std::fill_n(models[i].begin() + static_cast<std::ptrdiff_t>(first), bytes, std::byte{0});
      } else if (what < 7) {
        const std::size_t first = random() % arrays[i].size();
        std::vector<std::byte> some(1 + random() % (arrays[i].size() - first));
        fill(std::span(some).first(std::min<std::size_t>(some.size(), 500)), random);
        what == 4 ? arrays[i].replace(first, some) : arrays[i].store(first, some);
        std::copy(some.begin(), some.end(), models[i].begin() + static_cast<std::ptrdiff_t>(first));
      } else if (what < 9) {
        const std::size_t first = random() % arrays[i].size();
        std::vector<std::byte> some(1 + random() % (arrays[i].size() - first));
        what == 7 ? arrays[i].load(first, some) : arrays[i].look(first, some);
        ASSERT_EQ(std::memcmp(some.data(), models[i].data() + first, some.size()), 0);
      } else {
        pass(arrays[i], models[i], random);
      }
      ASSERT_LE(all->statistics().resident, memory);
    }
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      expect_equal(arrays[i], models[i]);
    }
    EXPECT_LE(all->statistics().high_water, memory);
    EXPECT_TRUE(all->statistics().file.reads > 0 || memory > kMebibyte);
    arrays.clear();
    EXPECT_EQ(all->statistics().resident, 0U);
    EXPECT_EQ(all->statistics().bytes, 0U);
  }
}

TEST_P(SpillCacheTest, ARoundMovesWhatDoesNotFitAndNoMore) {
  std::mt19937 random(7);
  const std::shared_ptr<SpillCache> all = cache(8 * kMebibyte);
  std::vector<SpilledBytes> arrays;
  std::vector<Model> models;
  constexpr std::size_t kArrays = 12;
  for (std::size_t i = 0; i < kArrays; ++i) {
    arrays.emplace_back(all, 2 * kMebibyte);
    models.emplace_back(2 * kMebibyte);
  }
  SpillStatistics before;
  constexpr int kRounds = 4;
  for (int round = 0; round < 3 + kRounds; ++round) {
    before = round == 3 ? all->statistics() : before;
    for (std::size_t i = 0; i < kArrays; ++i) {
      pass(arrays[i], models[i], random);
    }
  }
  const SpillStatistics after = all->statistics();
  EXPECT_LE(after.high_water, 8 * kMebibyte);
  // 16 of 24 MiB do not fit; pages that come and go need a part of the memory.
  const std::uint64_t read = (after.file.read - before.file.read) / kRounds;
  const std::uint64_t written = (after.file.written - before.file.written) / kRounds;
  EXPECT_GE(read, 16 * kMebibyte);
  EXPECT_LE(read, 19 * kMebibyte);
  EXPECT_LE(written, 19 * kMebibyte);
  EXPECT_LE(after.demanded - before.demanded, read * kRounds / 4) << "pages were not read ahead";
}

TEST_P(SpillCacheTest, WhatFitsIsNeverWritten) {
  std::mt19937 random(7);
  const std::shared_ptr<SpillCache> all = cache(8 * kMebibyte);
  SpilledBytes array(all, 6 * kMebibyte);
  Model model(6 * kMebibyte);
  for (int round = 0; round < 3; ++round) {
    pass(array, model, random);
  }
  EXPECT_EQ(all->statistics().file.written, 0U);
  EXPECT_EQ(all->statistics().file.read, 0U);
}

TEST_P(SpillCacheTest, AnotherThreadMayReadACopyMeanwhile) {
  std::mt19937 random(7);
  const std::shared_ptr<SpillCache> all = cache(kMebibyte);
  SpilledBytes array(all, 3 * kMebibyte);
  Model model(3 * kMebibyte);
  pass(array, model, random);
  std::thread reader([copy = array, model] {
    for (int i = 0; i < 5; ++i) {
      expect_equal(copy, model);
    }
  });
  for (int i = 0; i < 5; ++i) {
    pass(array, model, random);
  }
  reader.join();
}

// Counts requests that write, and how many of them were under way at most.
class Counting final : public FileRequests {
 public:
  Counting(std::unique_ptr<FileRequests> below, std::atomic<int>& most) : below_(std::move(below)), most_(most) {}
  bool begin(const FileRequest& request) override {
    const bool begun = below_->begin(request);
    writing_.resize(std::max<std::size_t>(writing_.size(), request.slot + 1));
    writing_[request.slot] = begun && request.writes;
    most_ = std::max<int>(most_, static_cast<int>(std::count(writing_.begin(), writing_.end(), true)));
    return begun;
  }
  void collect(std::vector<FileResult>& ended, bool waits) override {
    const std::size_t before = ended.size();
    below_->collect(ended, waits);
    for (std::size_t i = before; i < ended.size(); ++i) {
      writing_[ended[i].slot] = false;
    }
  }

 private:
  std::unique_ptr<FileRequests> below_;
  std::atomic<int>& most_;
  std::vector<bool> writing_;
};

// A copy, as a save makes one, takes all of an array through the memory. Mutation tried: the search for pages that make
// room goes over all pages, in memory or not.
TEST_P(SpillCacheTest, ACopyLooksAtFewPagesForEachThatItMoves) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::uint64_t kMemory = 16 * kTile;
  constexpr std::size_t kPages = 512;
  std::atomic<int> most_writes = 0;
  const std::shared_ptr<SpillCache> all = cache(kMemory, [&](int file, std::uint32_t in_flight) {
    return std::make_unique<Counting>(
        GetParam() == FileBackend::threads ? make_file_threads(file, in_flight) : make_ring(file, in_flight),
        most_writes);
  });
  SpilledBytes array(all, kPages * kTile);
  Model model(array.size());
  pass(array, model, random);
  pass(array, model, random);
  most_writes = 0;
  const std::uint64_t compared = all->statistics().compared;
  const SpilledBytes copied = array;
  EXPECT_LE(all->statistics().compared - compared, 2 * kPages * (kMemory / kTile)) << "each page of both is moved once";
  EXPECT_GE(most_writes, 2) << "pages are written one at a time";
  EXPECT_LE(all->statistics().high_water, kMemory);
  expect_equal(copied, model);
  expect_equal(array, model);
}

TEST_P(SpillCacheTest, AFailedRequestLosesNothing) {
  for (const bool writes : {false, true}) {
    bool fails = false;
    const std::shared_ptr<SpillCache> all =
        cache(kMebibyte, tampered_threads([&](const FileRequest& request, FileResult& result) {
                if (fails && request.writes == writes) {
                  result.bytes = writes ? -ENOSPC : -EIO;
                }
              }));
    std::mt19937 random(7);
    SpilledBytes array(all, 4 * kMebibyte);
    Model model(4 * kMebibyte);
    fill(model, random);
    array.replace(0, model);
    fails = true;
    int errors = 0;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::byte> tile(kTile);
      for (std::size_t first = 0; first < array.size(); first += kTile) {
        fill(std::span(tile).first(100), random);
        const std::size_t bytes = std::min(kTile, array.size() - first);
        try {
          array.replace(first, std::span(tile).first(bytes));
          std::copy_n(tile.begin(), bytes, model.begin() + static_cast<std::ptrdiff_t>(first));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
          EXPECT_NE(std::string(error.what()).find(writes ? "cannot be written" : "cannot be read"), std::string::npos)
              << error.what();
          ++errors;
        }
      }
    }
    EXPECT_GT(errors, 0);
    EXPECT_LE(all->statistics().high_water, kMebibyte);
    fails = false;
    expect_equal(array, model);
  }
}

}  // namespace
}  // namespace gradwire::memory
