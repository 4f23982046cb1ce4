// Tests tables through the C API: values, clocks, snapshots, files, options.
#include "gradwire/tables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>

#include "c_side.h"
#include "c_table_support.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

TEST_F(CTable, ServesAProgramInC) {
  const std::string folder = shared_folder();
  EXPECT_EQ(c_side_table(MPI_COMM_WORLD, folder.c_str()), 0) << gradwire_last_error();
  remove_shared(folder);
}

TEST_F(CTable, PushesAddUpAtTheOwner) {
  make(options_of());
  EXPECT_EQ(gradwire_table_rank(table), world_rank());
  EXPECT_EQ(gradwire_table_world_size(table), world_size());
  const auto ranks = static_cast<float>(world_size());
  const float ranks_sum = ranks * (ranks + 1) / 2;
  const auto own = static_cast<float>(world_rank() + 1);
  ASSERT_OK(push({7, 3, 7}, {own, 2 * own, 10 * own, 0, own, own}));
  ASSERT_OK(push({}, {}));
  ASSERT_OK(gradwire_table_synchronize(table));
  EXPECT_EQ(pull({3, 7, 50, 3}), (Rows{-10 * ranks_sum, 0, -2 * ranks_sum, -3 * ranks_sum, 0, 0, -10 * ranks_sum, 0}));
  EXPECT_TRUE(pull({}).empty());
  ASSERT_OK(gradwire_table_pull(table, nullptr, 0, nullptr));

  std::vector<std::uint64_t> held(static_cast<std::size_t>(world_size()));
  for (std::uint64_t id = 0; id < kRows; ++id) {
    int owner = -7;
    ASSERT_OK(gradwire_table_owner(table, id, &owner));
    ASSERT_TRUE(owner >= 0 && owner < world_size()) << owner;
    held[static_cast<std::size_t>(owner)] += id == 3 || id == 7 ? 1 : 0;
  }
  const gradwire_row_statistics found = statistics();
  EXPECT_EQ(found.rows_held, held[static_cast<std::size_t>(world_rank())]);
  EXPECT_EQ(found.rows_pushed, 2U) << "duplicates were merged";
  EXPECT_EQ(found.rows_pulled, 3U);
  EXPECT_EQ(found.rows_nonfinite, 0U);
  EXPECT_EQ(found.rows_own + found.rows_received + found.rows_cached + found.rows_unchanged, 3U);
  EXPECT_EQ(found.bytes_sent > 0 && found.messages_sent > 0, world_size() > 1);
  EXPECT_EQ(found.bytes_received > 0 && found.messages_received > 0, world_size() > 1);
  EXPECT_GE(found.wait_seconds, 0);

  ASSERT_OK(gradwire_table_synchronize(table));
  if (world_rank() == 0) {
    const Ids ids{7, 7};
    const Rows values{5, 6, 8, 9};
    ASSERT_OK(gradwire_table_assign(table, ids.data(), ids.size(), values.data()));
  }
  ASSERT_OK(gradwire_table_synchronize(table));
  EXPECT_EQ(pull({7}), (Rows{8, 9})) << "the last one counts";
}

TEST_F(CTable, OptionsAreTaken) {
  auto options = options_of("first_table");
  options.optimizer = GRADWIRE_ROW_ADAGRAD;
  options.learning_rate = 0.5F;
  options.epsilon = 1;
  options.initial_scale = 0.25F;
  options.seed = 5;
  make(options);
  const Rows begin = pull(all_ids());
  float largest = 0;
  for (const float value : begin) {
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_LE(largest, 0.25F);
  EXPECT_GT(largest, 0.2F) << "values are uniform in that range";
  ASSERT_OK(gradwire_table_synchronize(table));
  if (world_rank() == 0) {
    ASSERT_OK(push({9}, {3, -4}));
  }
  ASSERT_OK(gradwire_table_synchronize(table));
  const Rows row = pull({9});
  EXPECT_FLOAT_EQ(row[0], begin[18] - 0.5F * 3 / (3 + 1)) << "rate g / (sqrt(g^2) + epsilon)";
  EXPECT_FLOAT_EQ(row[1], begin[19] + 0.5F * 4 / (4 + 1));
  gradwire_table_destroy(table);

  options.seed = 6;
  options.optimizer = GRADWIRE_ROW_SGD;
  options.learning_rate = 0;  // means 0.01
  make(options);
  const Rows other = pull(all_ids());
  EXPECT_NE(begin, other) << "the seed decides";
  ASSERT_OK(gradwire_table_synchronize(table));
  if (world_rank() == world_size() - 1) {
    ASSERT_OK(push({9}, {3, -4}));
  }
  ASSERT_OK(gradwire_table_synchronize(table));
  EXPECT_FLOAT_EQ(pull({9})[0], other[18] - 0.01F * 3);
}

TEST_F(CTable, RowsThatDoNotFitLieInAFile) {
  auto options = options_of();
  options.rows = 9000;
  options.width = 256;
  const std::string store = "file:" + std::filesystem::temp_directory_path().string();
  options.store = store.c_str();
  options.memory = 1200 << 10;
  make(options);
  Ids ids;
  for (auto id = static_cast<std::uint64_t>(world_rank()); id < options.rows;
       id += static_cast<std::uint64_t>(world_size())) {
    ids.push_back(id);
  }
  Rows rows(ids.size() * options.width, 2.0F);
  ASSERT_OK(gradwire_table_assign(table, ids.data(), ids.size(), rows.data()));
  ASSERT_OK(gradwire_table_synchronize(table));
  std::fill(rows.begin(), rows.end(), 0.0F);
  ASSERT_OK(gradwire_table_pull(table, ids.data(), ids.size(), rows.data()));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), 2.0F), static_cast<std::ptrdiff_t>(rows.size()));
  const gradwire_row_statistics found = statistics();
  EXPECT_EQ(found.rows_in_memory + found.rows_in_file, found.rows_held);
  EXPECT_GT(found.rows_in_file, found.rows_in_memory);
  EXPECT_GT(found.store_reads, 0U);
  EXPECT_LE(found.store_memory_bytes, options.memory);
  EXPECT_GT(found.store_file_bytes, 0U);
  ASSERT_OK(gradwire_table_synchronize(table));
}

TEST_F(CTable, RowsAndGradientsTravelByTheirCodecs) {
  auto options = options_of();
  options.codec = "bf16";
  options.gradient_codec = "int8";
  make(options);
  std::uint64_t foreign = 0;  // a row of another rank
  for (int owner = world_rank(); owner == world_rank() && foreign < kRows - 1;) {
    ASSERT_OK(gradwire_table_owner(table, ++foreign, &owner));
  }
  const bool travels = world_size() > 1;
  ASSERT_OK(gradwire_table_synchronize(table));
  if (world_rank() == 0) {
    ASSERT_OK(push({foreign}, {127, 1.3F}));  // int8: steps of 1
  }
  ASSERT_OK(gradwire_table_synchronize(table));
  if (world_rank() == 0) {
    EXPECT_EQ(pull({foreign}), (Rows{-127, travels ? -1.0F : -1.3F}));
    ASSERT_OK(gradwire_table_assign(table, &foreign, 1, Rows{1.001F, 2}.data()));
  }
  ASSERT_OK(gradwire_table_synchronize(table));
  if (world_rank() == 0) {
    EXPECT_EQ(pull({foreign}), (Rows{travels ? 1.0F : 1.001F, 2}));
  }
}

TEST_F(CTable, ClocksAndTheCacheBoundWhatIsRead) {
  auto options = options_of();
  options.staleness = 1;
  options.cache_bytes = 1U << 20U;
  options.read_own_writes = GRADWIRE_OFF;
  make(options);
  const Ids ids = all_ids();
  for (int step = 0; step < 4; ++step) {
    ASSERT_OK(gradwire_table_prefetch(table, ids.data(), ids.size()));
    static_cast<void>(pull(ids));
    ASSERT_OK(push(ids, Rows(kRows * kWidth, 1.0F)));
    ASSERT_OK(gradwire_table_tick(table));
    ASSERT_OK(gradwire_table_progress(table));
  }
  std::uint64_t clock = 0;
  ASSERT_OK(gradwire_table_clock(table, &clock));
  EXPECT_EQ(clock, 4U);
  const gradwire_row_statistics found = statistics();
  EXPECT_LE(found.maximum_age, 1U);
  EXPECT_EQ(found.rows_pulled, 4 * kRows);
  EXPECT_EQ(found.rows_cached > 0, world_size() > 1);
  EXPECT_EQ(found.cache_bytes > 0, world_size() > 1);
  ASSERT_OK(gradwire_table_synchronize(table));
  EXPECT_EQ(pull({59})[1], -4.0F * static_cast<float>(world_size()));
}

struct Visits {
  Ids ids;
  Rows rows;
};

void visit(void* context, std::uint64_t id, const float* values, std::uint32_t width) {
  auto* visits = static_cast<Visits*>(context);
  visits->ids.push_back(id);
  visits->rows.insert(visits->rows.end(), values, values + width);
}

TEST_F(CTable, SnapshotsHoldWhatWasPushedBefore) {
  make(options_of());
  const Ids some{40, 5, 11, 12, 13, 14, 15, 16};
  ASSERT_OK(push(some, Rows(some.size() * kWidth, 2.0F)));
  gradwire_table_snapshot* snapshot = nullptr;
  ASSERT_OK(gradwire_table_snapshot_create(table, &snapshot));
  ASSERT_OK(push(all_ids(), Rows(kRows * kWidth, 100.0F)));
  ASSERT_OK(gradwire_table_synchronize(table));
  Ids mine;
  for (const std::uint64_t id : {5, 11, 12, 13, 14, 15, 16, 40}) {
    int owner = -1;
    ASSERT_OK(gradwire_table_owner(table, id, &owner));
    if (owner == world_rank()) {
      mine.push_back(id);
    }
  }
  gradwire_table_destroy(table);
  table = nullptr;

  std::uint64_t rows = 99;
  ASSERT_OK(gradwire_table_snapshot_rows(snapshot, &rows));
  EXPECT_EQ(rows, mine.size());
  Visits visits;
  ASSERT_OK(gradwire_table_snapshot_visit(snapshot, visit, &visits));
  EXPECT_EQ(visits.ids, mine) << "ids are ascending, and the table is gone";
  EXPECT_EQ(visits.rows, Rows(mine.size() * kWidth, -2.0F * static_cast<float>(world_size())));
  for (std::uint64_t id = 0; id < kRows; ++id) {
    const float* values = nullptr;
    ASSERT_OK(gradwire_table_snapshot_find(snapshot, id, &values));
    const bool here = std::find(mine.begin(), mine.end(), id) != mine.end();
    ASSERT_EQ(values != nullptr, here) << id;
    if (here) {
      EXPECT_EQ(values[1], -2.0F * static_cast<float>(world_size()));
    }
  }
  const float* values = nullptr;
  const std::string name = "gradwire_table_snapshot_";
  expect_invalid(gradwire_table_snapshot_rows(nullptr, &rows), name + "rows: snapshot is NULL; give one that");
  expect_invalid(gradwire_table_snapshot_rows(snapshot, nullptr), name + "rows: rows is NULL; give where to write");
  expect_invalid(gradwire_table_snapshot_find(nullptr, 1, &values), name + "find: snapshot is NULL");
  expect_invalid(gradwire_table_snapshot_find(snapshot, 1, nullptr), name + "find: values is NULL");
  expect_invalid(gradwire_table_snapshot_visit(nullptr, visit, nullptr), name + "visit: snapshot is NULL");
  expect_invalid(gradwire_table_snapshot_visit(snapshot, nullptr, nullptr), name + "visit: visit is NULL; give the");
  gradwire_table_snapshot* none = snapshot;
  expect_invalid(gradwire_table_snapshot_create(nullptr, &none), name + "create: table is NULL; give one that");
  EXPECT_EQ(none, nullptr);
  gradwire_table_snapshot_destroy(snapshot);
  gradwire_table_snapshot_destroy(nullptr);
}

TEST_F(CTable, SavedRowsComeBack) {
  make(options_of("saved"));
  const std::string folder = shared_folder();
  ASSERT_OK(push(all_ids(), Rows(kRows * kWidth, 1.0F)));
  ASSERT_OK(gradwire_table_save(table, folder.c_str()));
  const std::string file =
      "saved-rank-" + std::to_string(world_rank()) + "-of-" + std::to_string(world_size()) + ".gwtable";
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(folder) / file)) << file;
  ASSERT_OK(push(all_ids(), Rows(kRows * kWidth, 1.0F)));
  ASSERT_OK(gradwire_table_synchronize(table));
  EXPECT_EQ(pull({8})[0], -2.0F * static_cast<float>(world_size()));
  ASSERT_OK(gradwire_table_synchronize(table));
  ASSERT_OK(gradwire_table_load(table, folder.c_str()));
  EXPECT_EQ(pull({8})[0], -1.0F * static_cast<float>(world_size()));

  // A file that cannot be read or written is an error on every rank, and the table can still be used.
  EXPECT_NE(gradwire_table_load(table, (folder + "/none").c_str()), GRADWIRE_OK);
  EXPECT_THAT(gradwire_last_error(), HasSubstr(folder + "/none"));
  EXPECT_NE(gradwire_table_save(table, "/dev/null/x"), GRADWIRE_OK);
  EXPECT_THAT(gradwire_last_error(), HasSubstr("/dev/null/x"));
  expect_invalid(gradwire_table_save(table, nullptr), "gradwire_table_save: directory is NULL; give the name of one");
  expect_invalid(gradwire_table_load(table, nullptr), "gradwire_table_load: directory is NULL; give the name of one");
  EXPECT_EQ(pull({8})[0], -1.0F * static_cast<float>(world_size()));
  remove_shared(folder);
}

}  // namespace
}  // namespace gradwire::test
