// Tests the bytes that a Table sends and saves: files of earlier builds must stay readable.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <fstream>

#include "table_support.hpp"
#include "tests/support/hex.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/sent_bytes.hpp"

namespace gradwire::test {
namespace {

// One rank acts at a time, so that messages have a fixed order.
TEST(TableGolden, Messages) {
  const auto sent = [](const char* codec, RowOptimizer optimizer) {
    std::array<std::string, 2> told;
    std::barrier meet(2);
    run_ranks(2, [&](std::shared_ptr<Transport> transport) {
      const auto log = std::make_shared<SentBytes>(std::move(transport));
      const auto rank = static_cast<std::size_t>(log->rank());
      {
        TableOptions options = table_options(50, 3);
        options.optimizer = optimizer;
        options.initial_scale = 0.5F;
        options.codec = options.gradient_codec = codec;
        options.cache_bytes = 1 << 16;
        Table table(log, options);
        Ids ids;
        for (std::uint64_t id = 0; id < 40; id += 3) {
          ids.push_back(39 - id);
        }
        std::vector<float> values;
        for (std::size_t i = 0; i < ids.size() * 3; ++i) {
          values.push_back(0.25F * static_cast<float>(i % 11) - 0.75F);
        }
        for (int step = 0; step < 3; ++step) {
          for (int turn = 0; turn < 2; ++turn) {
            meet.arrive_and_wait();
            if (turn == table.rank()) {
              pull(table, ids);
              step == 1 ? table.assign(ids, values) : table.push(ids, values);
              pull(table, Ids{7, 7, 9});
            }
            meet.arrive_and_wait();
            table.synchronize();
          }
          table.tick();
          table.synchronize();
        }
      }
      told[rank] = log->told();
    });
    return told[0] + " " + told[1];
  };
  EXPECT_EQ(sent("exact", RowOptimizer::adagrad), "2798:868ca9f4 2746:61ee8917");
  EXPECT_EQ(sent("bf16", RowOptimizer::sgd), "2570:b047ca43 2518:2b8e93d6");
  EXPECT_EQ(sent("int8", RowOptimizer::sgd), "2533:bc73911b 2481:10b0560b");
}

// Version 2 of the format, as in docs/explanation/tables.md: both ranks' files of a table with 6 rows.
struct Golden {
  RowOptimizer optimizer;
  std::array<std::string, 2> files;  // in hex
};

TableOptions golden_options(RowOptimizer optimizer) {
  return {.name = "gold", .rows = 6, .width = 2, .optimizer = optimizer, .learning_rate = 0.5F};
}

std::string file_of(int rank) { return "gold-rank-" + std::to_string(rank) + "-of-2.gwtable"; }

// Removes the random number of a save and the checksum that depends on it.
std::string without_number(std::string hex) {
  constexpr std::size_t kNumber = 2 * (8 + 4 + 4 + 4 + 8 + 16 + 8);
  return hex.size() < kNumber + 16 ? hex : hex.erase(kNumber, 16).erase(hex.size() - 8);
}

void train(Table& table) {
  for (std::uint64_t id = 0; id < 5; ++id) {
    if (static_cast<int>(id % 2) == table.rank()) {
      table.push(Ids{id}, std::vector<float>{static_cast<float>(id), -2.5F});
    }
    table.synchronize();
  }
  table.tick();
  table.tick();
  table.synchronize();
}

const std::array<Golden, 2> kGolden = {{
    {RowOptimizer::sgd,
     {
         "67777461626c65000200000004000000676f6c6400000000020000000600000000000000020000000000000002000000"
         "0000000090a6d90f0882cf2b02000000000000000100000000000000000000bf0000a03f0200000000000000000080bf"
         "0000a03fd4464da1",
         "67777461626c65000200000004000000676f6c6401000000020000000600000000000000020000000000000002000000"
         "0000000090a6d90f0882cf2b03000000000000000000000000000000000000000000a03f03000000000000000000c0bf"
         "0000a03f0400000000000000000000c00000a03f42ef6175",
     }},
    {RowOptimizer::adagrad,
     {
         "67777461626c65000200000004000000676f6c6400000000020000000600000000000000020000000100000002000000"
         "00000000f98e3f3d4d17d69202000000000000000100000000000000000000bf0000003f0000803f0000c84002000000"
         "00000000000000bf0000003f000080400000c8401e75573c",
         "67777461626c65000200000004000000676f6c6401000000020000000600000000000000020000000100000002000000"
         "00000000f98e3f3d4d17d69203000000000000000000000000000000000000000000003f000000000000c84003000000"
         "00000000000000bf0000003f000010410000c8400400000000000000000000bf0000003f000080410000c8406c77c342",
     }},
}};

TEST(TableGolden, FilesAreWrittenAsEver) {
  for (const Golden& golden : kGolden) {
    const ScratchFolder folder;
    run_tables(2, golden_options(golden.optimizer), [&](Table& table) {
      train(table);
      table.save(folder.path());
    });
    for (int rank = 0; rank < 2; ++rank) {
      const std::string hex = hex_of(read_text(folder.path() / file_of(rank)));
      EXPECT_EQ(without_number(hex), without_number(golden.files[static_cast<std::size_t>(rank)])) << hex;
    }
  }
}

TEST(TableGolden, FilesOfEarlierBuildsAreRead) {
  for (const Golden& golden : kGolden) {
    const ScratchFolder folder;
    for (int rank = 0; rank < 2; ++rank) {
      std::ofstream(folder.path() / file_of(rank), std::ios::binary)
          << bytes_of(golden.files[static_cast<std::size_t>(rank)]);
    }
    std::vector<float> trained;
    run_tables(2, golden_options(golden.optimizer), [&](Table& table) {
      train(table);
      if (const std::vector<float> rows = pull(table, all_ids(table)); table.rank() == 0) {
        trained = rows;
      }
    });
    for (const int world : {1, 2, 3}) {
      run_tables(world, golden_options(golden.optimizer), [&](Table& table) {
        table.load(folder.path());
        EXPECT_EQ(pull(table, all_ids(table)), trained);
      });
    }
  }
}

}  // namespace
}  // namespace gradwire::test
