// Tests the rows of a session's tables in its files: exactly the written rows are read, with the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "reseal.hpp"
#include "session/parts/tables/session_tables.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire::test {
namespace {

using session::SavedState;

struct Taken final : session::RowSink {
  bool wants(std::size_t number, const table::SavedTable& table) override {
    const bool wanted = !only || *only == number;
    if (wanted) {
      names.push_back(table.name);
    }
    return wanted;
  }
  bool take(std::size_t number, const table::Shard::Row& row) override {
    std::vector<float>& to = rows[{number, row.id}];
    if (!to.empty()) {
      return false;
    }
    to.assign(row.values.begin(), row.values.end());
    to.insert(to.end(), row.accumulators.begin(), row.accumulators.end());
    return true;
  }

  std::optional<std::size_t> only;
  std::vector<std::string> names;
  std::map<std::pair<std::size_t, std::uint64_t>, std::vector<float>> rows;
};

table::SavedTable table_of(const std::string& name, RowOptimizer optimizer, const std::vector<std::uint64_t>& ids) {
  table::SavedTable saved{.name = name, .rows = 100, .width = 3, .optimizer = optimizer, .layout = 7};
  table::Shard shard({.width = 3, .optimizer = optimizer, .learning_rate = 1});
  for (const std::uint64_t id : ids) {
    const std::vector<float> gradient{static_cast<float>(id), 0.5F, -1};
    shard.apply(std::span(&id, 1), gradient.data());
  }
  const auto kept = std::make_shared<const table::Shard>(std::move(shard));
  saved.own = kept->ids();
  saved.shard = kept;
  return saved;
}

SavedState state_of(std::vector<table::SavedTable> tables) {
  SavedState state;
  state.step = 3;
  state.tables = std::move(tables);
  return state;
}

std::string written(const SavedState& state) {
  std::stringstream stream;
  session::write_state(state, stream);
  return stream.str();
}

const std::vector<std::uint64_t> kIds{40, 5, 99, 0};

std::string good_file() {
  return written(state_of({table_of("users", RowOptimizer::adagrad, kIds), table_of("items", RowOptimizer::sgd, {8})}));
}

TEST(TableFiles, RowsComeBackAsTheyWere) {
  std::stringstream in(good_file());
  Taken taken;
  const SavedState read = session::read_state(in, "file", &taken);
  ASSERT_EQ(read.tables.size(), 2U);
  EXPECT_EQ(read.tables[1].name, "items");
  EXPECT_EQ(read.tables[0].layout, 7U);
  EXPECT_EQ(taken.names, (std::vector<std::string>{"users", "items"}));
  EXPECT_EQ(taken.rows.size(), 5U);
  const float rate = 1 / (5 + 1e-10F) * 5;
  EXPECT_EQ((taken.rows[{0, 99}].size()), 6U);
  EXPECT_FLOAT_EQ((taken.rows[{0, 5}][0]), -rate);
  EXPECT_EQ((taken.rows[{0, 5}][3]), 25);
  EXPECT_EQ((taken.rows[{1, 8}]), (std::vector<float>{-8, -0.5F, 1}));

  std::stringstream again(good_file());
  Taken second;
  second.only = 1;
  EXPECT_EQ(session::read_state(again, "file", &second).tables.size(), 2U);
  EXPECT_EQ(second.rows.size(), 1U);
  std::stringstream neither(good_file());
  EXPECT_EQ(session::read_state(neither, "file").tables.size(), 2U) << "rows are skipped";
}

// Each file has a correct checksum. Mutation tried: without the check.
TEST(TableFiles, WhatNobodyWritesIsRefusedWithItsPlace) {
  const std::string good = good_file();
  const std::size_t users = good.find("users");
  const auto at = [&](std::size_t offset) { return users + 5 + offset; };  // after the name
  constexpr std::size_t kWidth = 8;
  constexpr std::size_t kOptimizer = 12;
  constexpr std::size_t kCount = 24;
  constexpr std::size_t kRowIds = 32;
  const auto expect = [&](const std::string& part, const std::function<void(std::string&)>& change) {
    std::string bad = good;
    change(bad);
    reseal(bad);
    std::stringstream in(bad);
    Taken taken;
    const Error error = error_of([&] { (void)session::read_state(in, "file", &taken); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
    EXPECT_NE(std::string(error.what()).find("file: "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  };
  expect("table \"users\": its optimizer is 2", [&](std::string& bad) { bad[at(kOptimizer)] = 2; });
  expect("table \"users\": rows = 100, width = 0", [&](std::string& bad) { bad[at(kWidth)] = 0; });
  expect("table \"us/rs\": a name has", [&](std::string& bad) { bad[users + 2] = '/'; });
  expect("row 1 of 4 in this file, id 0, comes after id 0", [&](std::string& bad) { bad[at(kRowIds + 8)] = 0; });
  expect("row 2 of 4 in this file, id 3, comes after id 5", [&](std::string& bad) { bad[at(kRowIds + 16)] = 3; });
  expect("row 3 of 4 in this file, id 100, lies outside the table of 100 rows",
         [&](std::string& bad) { bad[at(kRowIds + 24)] = 100; });
  expect("ends too early", [&](std::string& bad) { bad[at(kCount) + 6] = 1; });
  expect("table \"users\" is there twice", [&](std::string& bad) { bad.replace(bad.find("items"), 5, "users"); });
  expect("is of a version with tables, and has none", [&](std::string& bad) {
    bad = written(state_of({}));
    bad[8] = 4;
    bad.insert(bad.size() - 8, 4, '\0');
    bad[16] = static_cast<char>(bad[16] + 4);
  });
  std::string damaged = good;
  damaged[at(kOptimizer)] = 2;
  std::stringstream in(damaged);
  EXPECT_NE(std::string(error_of([&] { (void)session::read_state(in, "file"); }).what()).find("its checksum is wrong"),
            std::string::npos);
}

TEST(TableFiles, ARowOfTwoFilesIsRefused) {
  Taken taken;
  for (const bool second : {false, true}) {
    std::stringstream in(good_file());
    const Error error = error_of([&] {
      (void)session::read_state(in, "file", &taken);
      throw Error(ErrorCode::internal, "read");
    });
    EXPECT_EQ(error.code(), second ? ErrorCode::corrupt : ErrorCode::internal);
    EXPECT_EQ(
        std::string(error.what()).find("table \"users\": row 0 of 4 in this file, id 0, is in another file, too") !=
            std::string::npos,
        second)
        << error.what();
  }
}

TEST(TableFiles, ARankTakesTheRowsThatItHoldsInItsWorld) {
  session::SessionTables tables;
  tables.enter({.members = {0, 1, 2}, .nodes = {0, 0, 0}}, 1);
  tables.add({.name = "users", .rows = 100, .width = 3, .optimizer = RowOptimizer::adagrad, .copies = 1});
  session::SessionTables::Loading loading(tables);
  std::stringstream in(written(state_of({table_of("users", RowOptimizer::adagrad, kIds)})));
  (void)session::read_state(in, "file", &loading);
  tables.load(std::move(loading));
  const std::uint64_t held = tables.statistics(0).rows_held;
  EXPECT_GT(held, 0U);
  EXPECT_LT(held, kIds.size()) << "a file has only its rank's own rows";
}

// A file has the rows as they were at the time of the save. Mutation tried: a copy's pages may be written to.
TEST(TableFiles, StepsAfterASaveDoNotShow) {
  session::ReplicatedTable table({.name = "users", .rows = 100, .width = 1, .learning_rate = 1, .copies = 1});
  table.enter({.members = {0}, .nodes = {0}}, 0);
  const auto step = [&](float gradient) {
    const std::vector<std::uint64_t> ids{3, 90};
    table.push(ids, std::vector<float>(ids.size(), gradient));
    std::vector<wire::Bytes> to(1);
    table.send_pushes(0, to);
    wire::ByteReader in(to[0], "pushes");
    (void)in.varint();
    table.take_pushes(in, 1);
    table.add_up(false, std::nullopt);
    table.count();
  };
  step(1);
  SavedState state = state_of({{.name = "users", .rows = 100, .width = 1}});
  table.save(state.tables[0]);
  step(10);
  std::stringstream in(written(state));
  Taken taken;
  (void)session::read_state(in, "file", &taken);
  EXPECT_EQ((taken.rows[{0, 3}]), std::vector<float>{-1});
  EXPECT_EQ((taken.rows[{0, 90}]), std::vector<float>{-1});
}

// Any bytes after a correct header and with a correct checksum give an error, or rows of their tables.
TEST(TableFiles, DamagedContentNeverReadsOutOfBounds) {
  std::mt19937 random(11);
  const std::string good = good_file();
  int loaded = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bad = good;
    for (std::uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
      bad[24 + random() % (good.size() - 32)] = static_cast<char>(random());
    }
    reseal(bad);
    std::stringstream in(bad);
    Taken taken;
    try {
      const SavedState read = session::read_state(in, "fuzz", &taken);
      for (const auto& [place, row] : taken.rows) {
        ASSERT_LT(place.second, read.tables.at(place.first).rows);
        ASSERT_EQ(row.size(), read.tables[place.first].row_floats());
      }
      ++loaded;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::corrupt) << error.what();
    }
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace gradwire::test
