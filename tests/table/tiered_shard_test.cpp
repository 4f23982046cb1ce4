// Tests shards whose rows lie in memory and in a file, against shards in memory: random operations give the same bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "memory/process_pool.hpp"
#include "table/row_batch.hpp"
#include "table/shard.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::table {
namespace {

using test::error_of;
using ::testing::HasSubstr;
using Ids = std::vector<std::uint64_t>;

constexpr std::uint64_t kMemory = 1200 << 10;

class TieredShard : public testing::Test {
 protected:
  /// The shard has the least memory that is possible, in which some hundred of `rows` fit.
  [[nodiscard]] Shard::Settings settings(RowOptimizer optimizer, std::uint32_t width,
                                         std::uint64_t rows = 20000) const {
    return {.name = "t",
            .rows = rows,
            .width = width,
            .optimizer = optimizer,
            .learning_rate = 0.5F,
            .initial_scale = 0.1F,
            .seed = 3,
            .store = "file:" + folder_.path().string(),
            .memory = kMemory};
  }
  static Shard::Settings in_memory(Shard::Settings settings) {
    settings.store.clear();
    settings.memory = 0;
    return settings;
  }

  test::ScratchFolder folder_;
};

std::vector<float> floats_of(const Shard::Row& row) {
  std::vector<float> floats(row.values.begin(), row.values.end());
  floats.insert(floats.end(), row.accumulators.begin(), row.accumulators.end());
  return floats;
}

void expect_same(const Shard& tiered, const Shard& plain) {
  ASSERT_EQ(tiered.rows(), plain.rows());
  ASSERT_EQ(tiered.nonfinite_rows(), plain.nonfinite_rows());
  const Ids ids = plain.ids();
  ASSERT_EQ(tiered.ids(), ids);
  std::vector<std::vector<float>> expected;
  plain.visit(ids, [&](const Shard::Row& row) { expected.push_back(floats_of(row)); });
  std::size_t i = 0;
  tiered.visit(ids, [&](const Shard::Row& row) {
    ASSERT_EQ(row.id, ids[i]);
    ASSERT_EQ(std::memcmp(floats_of(row).data(), expected[i].data(), expected[i].size() * sizeof(float)), 0)
        << "row " << row.id;
    ++i;
  });
  ASSERT_EQ(i, ids.size());
}

/// Two shards that got the same calls, one with a store.
struct Pair {
  Shard tiered, plain;
};

struct Operations {
  std::mt19937_64 random;
  std::uint64_t rows;
  std::uint32_t width;

  Ids ids() {
    std::map<std::uint64_t, bool> ids;
    const std::uint64_t count = random() % 3 == 0 ? 1 + random() % 400 : 1 + random() % 20;
    for (std::uint64_t i = 0; i < count; ++i) {
      // A few rows are used again and again.
      ids[random() % 2 == 0 ? random() % 50 : random() % rows] = true;
    }
    Ids result;
    for (const auto& [id, here] : ids) {
      result.push_back(id);
    }
    return result;
  }
  std::vector<float> values(std::size_t count) {
    std::vector<float> values(count * width);
    for (float& value : values) {
      value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 256;
      value = random() % 100000 == 0 ? 3e38F : value;
    }
    return values;
  }

  void change(Pair& pair) {
    const Ids which = ids();
    const std::vector<float> floats = values(which.size());
    switch (random() % 3) {
      case 0:
        pair.tiered.assign(which, floats.data());
        pair.plain.assign(which, floats.data());
        break;
      default: pair.tiered.apply(which, floats.data()); pair.plain.apply(which, floats.data());
    }
  }
  void read(Pair& pair) {
    const Ids which = ids();
    RowBatch batch(which);
    std::vector<std::vector<float>> found(which.size());
    while (!batch.advance(pair.tiered, random() % 2 == 0, [&](std::size_t i, const float* row, std::uint64_t version) {
      found[i].assign(row, row + width);
      ASSERT_EQ(version, pair.plain.version(which[i]));
    })) {
    }
    std::vector<float> expected(width);
    for (std::size_t i = 0; i < which.size(); ++i) {
      pair.plain.read(which[i], expected.data());
      ASSERT_EQ(std::memcmp(found[i].data(), expected.data(), width * sizeof(float)), 0) << "row " << which[i];
    }
    pair.tiered.read(which[0], expected.data());
    ASSERT_EQ(expected, found[0]) << "a look at a row";
    ASSERT_EQ(pair.tiered.version(which[0]), pair.plain.version(which[0]));
  }
};

TEST_F(TieredShard, DoesWhatOneInMemoryDoes) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const RowOptimizer optimizer : {RowOptimizer::sgd, RowOptimizer::adagrad}) {
    for (const std::uint32_t width : {3U, 64U}) {
      const Shard::Settings with_store = settings(optimizer, width);
      Operations operations{std::mt19937_64(seed), with_store.rows, width};
      std::vector<Pair> pairs;
      pairs.push_back({Shard(with_store), Shard(in_memory(with_store))});
      for (int i = 0; i < 600; ++i) {
        Pair& pair = pairs[operations.random() % pairs.size()];
        switch (operations.random() % 40) {
          case 0:
            if (pairs.size() < 4) {
              pairs.push_back({pair.tiered.copy(), pair.plain.copy()});
            }
            break;
          case 1:
            if (pairs.size() > 1) {
              expect_same(pairs.back().tiered, pairs.back().plain);
              pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(operations.random() % pairs.size()));
            }
            break;
          case 2: pair.tiered.give_back(); break;
          default: operations.random() % 3 == 0 ? operations.read(pair) : operations.change(pair);
        }
        ASSERT_FALSE(HasFatalFailure());
      }
      for (const Pair& pair : pairs) {
        expect_same(pair.tiered, pair.plain);
      }
      if (width == 64) {
        EXPECT_GT(pairs[0].tiered.tier()->counts().reads + pairs[0].tiered.tier()->counts().hits, 0U);
      }
    }
  }
}

TEST_F(TieredShard, TakesNoMoreThanItsMemory) {
  const Shard::Settings with_store = settings(RowOptimizer::adagrad, 64, 40000);
  const auto in_use = [] {
    return memory::page_pool().statistics().uses[static_cast<std::size_t>(memory::MemoryUse::tables)].in_use;
  };
  const std::uint64_t before = in_use();
  Shard shard(with_store);
  std::uint64_t most = 0;
  const std::vector<float> ones(100 * 64, 1.0F);
  for (std::uint64_t first = 0; first < 20000; first += 100) {  // 10 MB
    Ids ids(100);
    for (std::uint64_t i = 0; i < 100; ++i) {
      ids[i] = first + i;
    }
    shard.apply(ids, ones.data());
    most = std::max(most, in_use() - before);
    ASSERT_LE(shard.tier()->bytes(), with_store.memory);
  }
  EXPECT_LE(most, with_store.memory * 11 / 10);
  EXPECT_GT(most, with_store.memory / 3);
  EXPECT_GT(shard.tier()->log().statistics().written, 8U << 20U);
  EXPECT_LT(shard.tier()->rows_in_memory(), 2000U);
  for (std::uint64_t id = 0; id < 20000; id += 999) {
    std::vector<float> row(64);
    std::vector<float> first(64);
    shard.read(id, row.data());
    Shard(in_memory(with_store)).read(id, first.data());
    EXPECT_EQ(row[7], first[7] - 0.5F * 1 / (1 + 1e-10F));
  }
}

TEST_F(TieredShard, RowsInUseStayInMemory) {
  const Shard::Settings with_store = settings(RowOptimizer::adagrad, 64);
  Shard shard(with_store);
  const std::vector<float> ones(64, 1.0F);
  for (std::uint64_t id = 0; id < 10000; ++id) {
    shard.apply(std::span(&id, 1), ones.data());
  }
  std::mt19937 random(1);
  const auto use = [&](std::uint64_t id) { shard.use(id, nullptr, [](const float*, std::uint64_t) {}); };
  const auto misses = [&](int accesses) {
    const std::uint64_t before = shard.tier()->counts().reads;
    for (int i = 0; i < accesses; ++i) {
      // Every other access is of one of 200 rows, the others are of any.
      use(i % 2 == 0 ? random() % 200 * 50 : random() % 10000);
    }
    return shard.tier()->counts().reads - before;
  };
  static_cast<void>(misses(4000));
  const std::uint64_t late = misses(4000);
  EXPECT_LT(late, 2300U) << "rows that are used often were read again";
  EXPECT_GT(late, 1500U) << "most of the others do not fit";
}

// The file does not grow for ever, although rows never change in place.
TEST_F(TieredShard, UsesTheRoomOfOldRecordsAgain) {
  Shard::Settings with_store = settings(RowOptimizer::adagrad, 64, 6000);
  Shard shard(with_store);
  Shard plain(in_memory(with_store));
  std::mt19937_64 random(5);
  const std::vector<float> ones(64 * 100, 1.0F);
  const auto pass = [&] {
    for (int i = 0; i < 150; ++i) {
      std::map<std::uint64_t, bool> some;
      for (int j = 0; j < 100; ++j) {
        some[random() % 6000] = true;
      }
      Ids ids;
      for (const auto& [id, here] : some) {
        ids.push_back(id);
      }
      shard.apply(ids, ones.data());
      plain.apply(ids, ones.data());
    }
    return shard.tier()->log().statistics();
  };
  const memory::PageFileStatistics first = pass();
  const memory::PageFileStatistics second = pass();
  EXPECT_GT(second.written, first.written * 3 / 2);
  EXPECT_LT(second.file_bytes, 6000 * 560 * 9 / 4) << "rows take 560 bytes each";
  expect_same(shard, plain);
  {
    const Shard copy = shard.copy();
    static_cast<void>(pass());
    EXPECT_GT(shard.tier()->log().statistics().file_bytes, second.file_bytes) << "the copy keeps its records";
  }
  const std::uint64_t with_copy = shard.tier()->log().statistics().file_bytes;
  static_cast<void>(pass());
  static_cast<void>(pass());
  EXPECT_LE(shard.tier()->log().statistics().file_bytes, with_copy + (1 << 20)) << "what the copy kept is used again";
  expect_same(shard, plain);
}

TEST_F(TieredShard, RefusesLittleMemoryAndUnknownStores) {
  Shard::Settings small = settings(RowOptimizer::sgd, 8);
  small.memory = 100 << 10;
  EXPECT_THAT(error_of([&] { Shard shard(small); }).what(), HasSubstr("memory = 100KiB is too little"));
  Shard::Settings nowhere = settings(RowOptimizer::sgd, 8);
  nowhere.store = "file:" + (folder_.path() / "missing").string();
  EXPECT_THAT(error_of([&] { Shard shard(nowhere); }).what(), HasSubstr("missing"));
  Shard::Settings many = settings(RowOptimizer::sgd, 1, 1 << 20);
  Shard shard(many);
  const auto fill = [&] {
    const std::vector<float> ones(1000, 1.0F);
    for (std::uint64_t first = 0; first < 200000; first += 1000) {
      Ids ids(1000);
      for (std::uint64_t i = 0; i < 1000; ++i) {
        ids[i] = first + i;
      }
      shard.apply(ids, ones.data());
    }
  };
  EXPECT_THAT(error_of(fill).what(), HasSubstr("does not hold the index of"));
}

}  // namespace
}  // namespace gradwire::table
