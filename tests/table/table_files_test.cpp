// Tests saved tables: they can be restored in a world of any size, and a damaged file harms nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <span>
#include <thread>

#include "table/hash_ring.hpp"
#include "table/table_file.hpp"
#include "table_support.hpp"
#include "tests/support/scratch_folder.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

TableOptions file_options() {
  TableOptions options = table_options(400, 3);
  options.optimizer = RowOptimizer::adagrad;
  options.initial_scale = 0.5F;
  options.cache_bytes = 1 << 16;
  options.staleness = 3;
  return options;
}

/// Makes one rank's part of a step; the sum over all ranks does not depend on their number.
void train(Table& table, int step) {
  for (auto id = static_cast<std::uint64_t>(table.rank()); id < 200;
       id += static_cast<std::uint64_t>(table.world_size())) {
    const float x = std::sin(static_cast<float>(id) + static_cast<float>(step));
    table.push(Ids{id}, std::vector<float>{x, 2 * x, -x});
  }
  table.tick();
  table.synchronize();
}

TEST(TableFiles, TrainingGoesOnInWorldsOfOtherSizes) {
  const ScratchFolder folder;
  std::mutex mutex;
  std::vector<float> uninterrupted;
  run_tables(2, file_options(), [&](Table& table) {
    for (int step = 0; step < 9; ++step) {
      train(table, step);
    }
    const std::vector<float> rows = pull(table, all_ids(table));
    const std::lock_guard lock(mutex);
    uninterrupted = rows;
  });
  int from = 0;
  for (const int world : {4, 3, 4}) {
    run_tables(world, file_options(), [&](Table& table) {
      if (from > 0) {
        static_cast<void>(pull(table, all_ids(table)));  // fills a cache that load() must not trust
        table.load(folder.path() / std::to_string(from));
      }
      for (int step = from; step < from + 3; ++step) {
        train(table, step);
      }
      table.save(folder.path() / std::to_string(from + 3));
      if (from == 6) {
        EXPECT_EQ(pull(table, all_ids(table)), uninterrupted);
      }
    });
    from += 3;
  }
}

TEST(TableFiles, TheSameWorldNeedsOnlyItsOwnFilesWhichAreEqualBitByBit) {
  const ScratchFolder folder;
  run_tables(3, file_options(), [&](Table& table) {
    train(table, 1);
    const std::vector<float> saved = pull(table, all_ids(table));
    table.save(folder.path() / "a");
    train(table, 2);
    train(table, 3);
    EXPECT_NE(pull(table, all_ids(table)), saved);
    table.load(folder.path() / "a");
    EXPECT_EQ(pull(table, all_ids(table)), saved) << "the cache had newer rows than the file";
    table.synchronize();
    table.save(folder.path() / "b");
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::string name = "table-rank-" + std::to_string(rank) + "-of-3.gwtable";
    const std::string bytes = read_text(folder.path() / "a" / name);
    EXPECT_GT(bytes.size(), 1000U);
    std::string again = read_text(folder.path() / "b" / name);
    ASSERT_EQ(bytes.size(), again.size());
    constexpr std::size_t kSave = 45;  // offset of the save's id
    EXPECT_NE(bytes.substr(kSave, 16), again.substr(kSave, 16)) << "each save has its own id";
    again.replace(kSave, 16, bytes, kSave, 16);
    EXPECT_EQ(bytes.substr(0, bytes.size() - 4), again.substr(0, bytes.size() - 4));
  }
}

TEST(TableFiles, PackedFilesAreSmallerAndHoldTheSameRows) {
  const ScratchFolder folder;
  TableOptions options = file_options();
  options.rows = 4000;
  options.width = 16;
  for (const bool packed : {false, true}) {
    options.save_packed = packed;
    run_tables(2, options, [&](Table& table) {
      std::vector<float> values(options.rows * options.width);
      std::mt19937 random(81);
      std::normal_distribution<float> normal(0, 0.02F);
      std::generate(values.begin(), values.end(), [&] { return normal(random); });
      table.assign(all_ids(table), values);
      table.synchronize();
      table.save(folder.path() / (packed ? "packed" : "plain"));
    });
  }
  const auto size = [&](const char* name) {
    return static_cast<double>(fs::file_size(folder.path() / name / "table-rank-0-of-2.gwtable"));
  };
  EXPECT_LT(size("packed"), 0.62 * size("plain"));  // Adagrad's sums are zeros, and exponents are alike
  for (const int world : {2, 3}) {
    run_tables(world, options, [&](Table& table) {
      table.load(folder.path() / "plain");
      const std::vector<float> plain = pull(table, all_ids(table));
      table.synchronize();
      table.assign(Ids{5}, std::vector<float>(options.width));
      table.synchronize();
      table.load(folder.path() / "packed");
      EXPECT_EQ(pull(table, all_ids(table)), plain);
    });
  }
}

TEST(TableFiles, ASaveThatFailsOnOneRankFailsOnAll) {
  const ScratchFolder folder;
  std::ofstream(folder.path() / "file") << "not a folder";
  run_tables(3, file_options(), [&](Table& table) {
    train(table, 1);
    try {
      table.save(folder.path() / (table.rank() == 1 ? "file" : "a"));
      ADD_FAILURE() << "rank " << table.rank() << " saved it";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr((folder.path() / "file").string()));
      EXPECT_THAT(error.what(), HasSubstr(table.rank() == 1 ? "" : "save failed on rank 1"));
    }
    train(table, 2);
    const std::vector<float> rows = pull(table, all_ids(table));
    table.save(folder.path() / "a");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() / "a"), {}), 3);  // all files exist
    train(table, 3);
    table.load(folder.path() / "a");
    EXPECT_EQ(pull(table, all_ids(table)), rows);
  });
}

// Mutations tried: the file is read to its end; it is opened like any file, and then nothing ends.
TEST(TableFiles, PipesAndFilesWithHolesEndWithAnError) {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "table-rank-0-of-1.gwtable";
  run_tables(1, file_options(), [&](Table& table) {
    train(table, 1);
    table.save(folder.path());
    const std::vector<float> rows = pull(table, all_ids(table));
    const std::string bytes = read_text(file);
    const auto refused = [&](ErrorCode code) {
      try {
        table.load(folder.path());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        return error;
      }
      return Error(ErrorCode::internal, "nothing was thrown");
    };
    for (const std::uint64_t more : {std::uint64_t{1}, std::uint64_t{1} << 42}) {
      fs::resize_file(file, bytes.size() + more);
      const Error error = refused(ErrorCode::corrupt);
      EXPECT_THAT(error.what(), HasSubstr(" bytes where its rows make " + std::to_string(bytes.size())));
    }
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_THAT(refused(ErrorCode::invalid_argument).what(), HasSubstr("it is a pipe"));
    fs::remove(file);
    std::ofstream(file, std::ios::binary) << bytes;
    table.load(folder.path());
    EXPECT_EQ(pull(table, all_ids(table)), rows);
  });
}

TEST(TableFiles, AnotherThreadMaySaveWhileRanksSynchronize) {
  const ScratchFolder folder;
  run_tables(3, file_options(), [&](Table& table) {
    train(table, 1);
    std::thread other([&] {
      for (int i = 0; i < 5; ++i) {
        table.save(folder.path());
      }
    });
    for (int i = 0; i < 50; ++i) {
      table.synchronize();
    }
    other.join();
    const std::vector<float> rows = pull(table, all_ids(table));
    table.load(folder.path());
    EXPECT_EQ(pull(table, all_ids(table)), rows);
  });
}

// The parameter says whether files are packed.
class BadFile : public ::testing::TestWithParam<bool> {
 protected:
  BadFile() {
    TableOptions options = file_options();
    options.save_packed = GetParam();
    run_tables(2, options, [&](Table& table) {
      train(table, 1);
      table.save(folder_.path());
    });
  }
  /// Expects that every rank refuses to load with this text, and is unchanged.
  void expect_refused(int world, const TableOptions& options, const std::string& text) {
    run_tables(world, options, [&](Table& table) {
      train(table, 5);
      const std::vector<float> before = pull(table, all_ids(table));
      try {
        table.load(folder_.path());
        ADD_FAILURE() << "rank " << table.rank() << " loaded it";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(text));
      }
      EXPECT_EQ(pull(table, all_ids(table)), before);
      table.synchronize();  // no rank trains before all have checked
      train(table, 6);
    });
  }
  [[nodiscard]] std::filesystem::path file(int rank) const {
    return folder_.path() / ("table-rank-" + std::to_string(rank) + "-of-2.gwtable");
  }
  void write(int rank, const std::string& bytes) const { std::ofstream(file(rank), std::ios::binary) << bytes; }

  ScratchFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Packed, BadFile, ::testing::Bool());

TEST_P(BadFile, Truncated) {
  const std::string bytes = read_text(file(1));
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{5}, std::size_t{30}, bytes.size() / 2, bytes.size() - 1}) {
    write(1, bytes.substr(0, count));
    expect_refused(2, file_options(), "table-rank-1-of-2.gwtable");
    expect_refused(3, file_options(), "table-rank-1-of-2.gwtable");
  }
}

TEST_P(BadFile, Damaged) {
  const std::string bytes = read_text(file(0));
  for (const std::size_t at : {std::size_t{0}, std::size_t{8}, std::size_t{40}, bytes.size() / 2, bytes.size() - 2}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write(0, damaged);
    expect_refused(2, file_options(), "table-rank-0-of-2.gwtable");
  }
}

// Damage is anywhere behind a correct checksum: the rows are read within the bytes, or refused.
TEST_P(BadFile, OfAnyBytes) {
  constexpr unsigned kSeed = 171;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  const std::string bytes = read_text(file(0));
  const table::FileHead head{
      .name = "table", .rank = 0, .world_size = 2, .rows = 400, .width = 3, .optimizer = RowOptimizer::adagrad};
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = bytes.substr(0, random() % 4 == 0 ? random() % bytes.size() : bytes.size() - 4);
    for (int change = 0; change < 3 && !damaged.empty(); ++change) {
      damaged[random() % std::min<std::size_t>(damaged.size(), 400)] = static_cast<char>(random());
    }
    const std::uint32_t crc = wire::crc32c(std::as_bytes(std::span(damaged.data(), damaged.size())));
    damaged.append(reinterpret_cast<const char*>(&crc), sizeof crc);
    write(0, damaged);
    try {
      static_cast<void>(table::saves_in(head, folder_.path()));
      static_cast<void>(table::read_table_files(head, folder_.path(), std::nullopt, [](const table::Shard::Row&) {}));
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a refusal
    }
  }
}

TEST_P(BadFile, OfAnotherSave) {
  const std::string first = read_text(file(1));
  run_tables(2, file_options(), [&](Table& table) {
    train(table, 2);
    table.save(folder_.path());
  });
  write(1, first);
  for (int rank = 0; rank < 2; ++rank) {
    std::filesystem::remove(previous_of(file(rank)));
  }
  for (const int world : {1, 2, 3}) {
    expect_refused(world, file_options(), "table-rank-0-of-2.gwtable (clock 1) and ");
    expect_refused(world, file_options(), "table-rank-1-of-2.gwtable (clock 1) are of different saves");
  }
}

// Mutation tried: a save replaces the files of the previous one, so nothing that can be loaded is left.
TEST(TableFiles, ASaveThatIsCutOffLeavesTheOneBefore) {
  for (const int world : {2, 3}) {
    const ScratchFolder folder;
    std::vector<float> rows;
    run_tables(2, file_options(), [&](Table& table) {
      for (int step = 0; step < 3; ++step) {
        train(table, step);
        const std::vector<float> all = pull(table, all_ids(table));
        if (step == 1 && table.rank() == 0) {
          rows = all;
        }
        table.save(folder.path());
      }
    });
    // The files are as if rank 1 had been killed before it wrote its own.
    const std::filesystem::path file = folder.path() / "table-rank-1-of-2.gwtable";
    std::filesystem::rename(previous_of(file), file);
    const auto loads = [&](Table& table) {
      table.load(folder.path());
      EXPECT_EQ(pull(table, all_ids(table)), rows) << "in a world of " << world;
      table.synchronize();
    };
    run_tables(world, file_options(), loads);
    // The next save works as well: rank 0 has the interrupted save, and the complete one before it.
    run_tables(2, file_options(), [&](Table& table) {
      loads(table);
      train(table, 3);
      table.save(folder.path());
    });
    std::filesystem::rename(previous_of(file), file);
    run_tables(world, file_options(), loads);
  }
}

TEST_P(BadFile, WithARowThatItsRankDoesNotHold) {
  for (int rank = 0; rank < 2; ++rank) {
    const table::HashRing ring(2);
    std::vector<float> values(6, 1.0F);
    table::Shard rows({.rows = 400, .width = 3, .optimizer = RowOptimizer::adagrad});
    for (std::uint64_t id = 0; id < 20; ++id) {
      if (ring.owner(id) == rank || id == 13) {  // 13 is in both files
        rows.restore({.id = id, .values = std::span(values).first(3), .accumulators = std::span(values).last(3)});
      }
    }
    const table::FileHead head{
        .name = "table", .rank = rank, .world_size = 2, .rows = 400, .width = 3, .optimizer = RowOptimizer::adagrad};
    table::make_table_file(head, rows, folder_.path())->commit();
  }
  for (const int world : {1, 2, 3}) {
    expect_refused(world, file_options(), "row 13 belongs to rank " + std::to_string(table::HashRing(2).owner(13)));
  }
}

TEST_P(BadFile, MissingOrOfAnotherTable) {
  TableOptions wider = file_options();
  wider.width = 4;
  TableOptions sgd = file_options();
  sgd.optimizer = RowOptimizer::sgd;
  TableOptions other = file_options();
  other.rows = 401;
  const auto refused = [&](const TableOptions& options, const char* text) {
    run_tables(2, options, [&](Table& table) {
      try {
        table.load(folder_.path());
        ADD_FAILURE() << "loaded";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), table.rank() == 0 ? ErrorCode::mismatch : error.code());
        EXPECT_THAT(error.what(), HasSubstr(text));
      }
    });
  };
  refused(wider, "width");
  refused(sgd, "optimizer");
  refused(other, "number of rows");
  write(0, read_text(file(1)));  // the file was renamed
  refused(file_options(), "the rank is 1, here it is 0");
  std::filesystem::remove(file(0));
  expect_refused(3, file_options(), "the files of all 2 ranks");
  std::filesystem::remove(file(1));
  expect_refused(2, file_options(), "holds no files of table \"table\"");
}

}  // namespace
}  // namespace gradwire::test
