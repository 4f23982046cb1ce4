// Tests the errors of wrong table calls through the C API, made by one rank or by all of them.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "c_table_support.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

using CTableErrors = CTable;

TEST_F(CTableErrors, WrongArgumentsAreNamedAndChangeNothing) {
  make(options_of());
  Rows rows(8);
  const Ids ids{3, kRows};
  constexpr std::uint64_t kTooMany = std::numeric_limits<std::uint64_t>::max() / 2;
  expect_invalid(gradwire_table_pull(nullptr, ids.data(), 1, rows.data()),
                 "gradwire_table_pull: table is NULL; give one that gradwire_table_create_mpi() made");
  expect_invalid(gradwire_table_pull(table, nullptr, 2, rows.data()),
                 "gradwire_table_pull: ids is NULL with count 2; give its address, or count 0");
  expect_invalid(gradwire_table_pull(table, ids.data(), 1, nullptr), "gradwire_table_pull: rows is NULL with count 1");
  expect_invalid(gradwire_table_pull(table, ids.data(), kTooMany, rows.data()),
                 "gradwire_table_pull: count 9223372036854775807 is more than memory holds; give how many are at ids");
  expect_invalid(gradwire_table_pull(table, ids.data(), 2, rows.data()), "id 60 (number 1 of 2)");
  expect_invalid(gradwire_table_push(nullptr, ids.data(), 1, rows.data()), "gradwire_table_push: table is NULL");
  expect_invalid(gradwire_table_push(table, nullptr, 1, rows.data()), "gradwire_table_push: ids is NULL with count 1");
  expect_invalid(gradwire_table_push(table, ids.data(), 1, nullptr), "push: gradients is NULL with count 1; give");
  expect_invalid(gradwire_table_push(table, ids.data(), 2, rows.data()), "outside the table");
  expect_invalid(push({3}, {1, NAN}), "push: the row for id 3 has NaN or Inf; nothing was sent");
  expect_invalid(gradwire_table_assign(nullptr, ids.data(), 1, rows.data()), "gradwire_table_assign: table is NULL");
  expect_invalid(gradwire_table_assign(table, nullptr, 1, rows.data()), "gradwire_table_assign: ids is NULL");
  expect_invalid(gradwire_table_assign(table, ids.data(), 1, nullptr), "assign: values is NULL with count 1; give");
  expect_invalid(gradwire_table_prefetch(nullptr, ids.data(), 1), "gradwire_table_prefetch: table is NULL");
  expect_invalid(gradwire_table_prefetch(table, nullptr, 1), "gradwire_table_prefetch: ids is NULL with count 1");
  expect_invalid(gradwire_table_prefetch(table, ids.data(), 1), "there is no cache; set cache_bytes");
  int owner = 0;
  expect_invalid(gradwire_table_owner(nullptr, 1, &owner), "gradwire_table_owner: table is NULL");
  expect_invalid(gradwire_table_owner(table, 1, nullptr), "gradwire_table_owner: rank is NULL; give where to write it");
  expect_invalid(gradwire_table_owner(table, kRows, &owner), "outside the table");
  std::uint64_t clock = 0;
  expect_invalid(gradwire_table_clock(nullptr, &clock), "gradwire_table_clock: table is NULL");
  expect_invalid(gradwire_table_clock(table, nullptr), "gradwire_table_clock: clock is NULL; give where to write it");
  expect_invalid(gradwire_table_tick(nullptr), "gradwire_table_tick: table is NULL");
  expect_invalid(gradwire_table_progress(nullptr), "gradwire_table_progress: table is NULL");
  expect_invalid(gradwire_table_synchronize(nullptr), "gradwire_table_synchronize: table is NULL");
  expect_invalid(gradwire_table_save(nullptr, "x"), "gradwire_table_save: table is NULL");
  expect_invalid(gradwire_table_load(nullptr, "x"), "gradwire_table_load: table is NULL");
  expect_invalid(gradwire_table_abort(nullptr, "x"), "gradwire_table_abort: table is NULL");
  expect_invalid(gradwire_table_abort(table, nullptr), "gradwire_table_abort: why is NULL; give the reason as a text");
  expect_invalid(gradwire_table_snapshot_create(table, nullptr), "snapshot_create: snapshot is NULL; give where");
  auto found = sized<gradwire_row_statistics>();
  expect_invalid(gradwire_table_statistics(nullptr, &found), "gradwire_table_statistics: table is NULL");
  expect_invalid(gradwire_table_statistics(table, nullptr), "gradwire_table_statistics: statistics is NULL");
  found.struct_size = 7;
  expect_invalid(gradwire_table_statistics(table, &found), "gradwire_row_statistics: struct_size is 7; set it to");
  EXPECT_EQ(gradwire_table_rank(nullptr), -1);
  EXPECT_EQ(gradwire_table_world_size(nullptr), -1);
  gradwire_table_destroy(nullptr);
  ASSERT_OK(gradwire_table_synchronize(table));
  EXPECT_EQ(pull(all_ids()), Rows(kRows * kWidth));
}

TEST_F(CTableErrors, OptionsThatAreWrongByThemselvesAreRefused) {
  const auto expect_refused = [&](const gradwire_table_options* options, const std::string& text,
                                  const gradwire_policy* policy = nullptr) {
    table = reinterpret_cast<gradwire_table*>(&table);  // NOLINT: the value must be replaced
    expect_invalid(gradwire_table_create_mpi(MPI_COMM_WORLD, policy, options, &table), text);
    EXPECT_EQ(table, nullptr) << text;
  };
  const std::string name = "gradwire_table_create_mpi: ";
  const gradwire_table_options right = options_of();
  expect_invalid(gradwire_table_create_mpi(MPI_COMM_WORLD, nullptr, &right, nullptr), name + "table is NULL");
  expect_refused(nullptr, name + "options is NULL; give one with struct_size, rows and width set");
  gradwire_table_options options = right;
  options.struct_size = 0;
  expect_refused(&options, "gradwire_table_options: struct_size is 0");
  options = right;
  options.optimizer = static_cast<gradwire_row_optimizer>(3);
  expect_refused(&options, name + "optimizer is 3; give GRADWIRE_ROW_SGD or GRADWIRE_ROW_ADAGRAD");
  options = right;
  options.read_own_writes = static_cast<gradwire_switch>(4);
  expect_refused(&options, name + "read_own_writes is 4; give GRADWIRE_ON or GRADWIRE_OFF");
  options = right;
  options.timeout_ms = -5;
  expect_refused(&options, name + "timeout_ms is -5; give a positive number, or 0 for five minutes");
  options = right;
  options.width = 0;  // ranks compare it, and agree that it is wrong
  table = nullptr;
  EXPECT_NE(gradwire_table_create_mpi(MPI_COMM_WORLD, nullptr, &options, &table), GRADWIRE_OK);
  EXPECT_THAT(gradwire_last_error(), HasSubstr("width = 0; give at least one row, and a width of 1 to 4096"));
}

TEST_F(CTableErrors, EveryRankLearnsOfADifferentOption) {
  auto options = options_of();
  options.staleness = world_rank() == 0 ? 0 : GRADWIRE_UNBOUNDED;
  const gradwire_status status = gradwire_table_create_mpi(MPI_COMM_WORLD, nullptr, &options, &table);
  if (world_size() == 1) {
    EXPECT_OK(status);
  } else {
    expect_error(status, GRADWIRE_MISMATCH, "rank 0 has staleness = 0, rank 1 has staleness = unbounded");
  }
  gradwire_table_destroy(table);
  options = options_of();
  options.read_own_writes = world_rank() == 0 ? GRADWIRE_ON : GRADWIRE_SWITCH_DEFAULT;
  make(options);
}

TEST_F(CTableErrors, APolicySaysHowItTravels) {
  gradwire_policy* policy = nullptr;
  ASSERT_OK(gradwire_policy_parse(
      "[[rule]]\nmatch = \"embed.*\"\ncodec = \"int8\"\nsync = { rows = true, staleness = 4 }\n", "p.toml", &policy));
  // The other ranks report different options by themselves, which shows that this one was taken.
  auto options = options_of();
  options.tensor = "embed.users";
  options.cache_bytes = 65536;
  gradwire_table_options plain = options;
  plain.gradient_codec = "int8";
  plain.codec = "int8";
  plain.staleness = 4;
  if (world_rank() == 0) {
    make(options, policy);
  } else {
    make(plain);
  }
  gradwire_table_destroy(table);
  table = nullptr;
  if (world_size() > 1) {
    plain.staleness = 3;
    expect_error(gradwire_table_create_mpi(MPI_COMM_WORLD, world_rank() == 0 ? policy : nullptr,
                                           world_rank() == 0 ? &options : &plain, &table),
                 GRADWIRE_MISMATCH, "rank 0 has staleness = 4, rank 1 has staleness = 3");
  }
  options.tensor = nullptr;  // its name is "table"
  expect_invalid(gradwire_table_create_mpi(MPI_COMM_WORLD, policy, &options, &table),
                 "policy p.toml: table \"table\": no rule matches it; write a [[rule]] with match = \"table\"");
  options.name = "embed.items";
  make(options, policy);
  gradwire_policy_destroy(policy);
}

TEST_F(CTableErrors, AbortEndsItOnEveryRank) {
  make(options_of());
  MPI_Barrier(MPI_COMM_WORLD);  // every rank has made its part
  if (world_rank() == world_size() - 1) {
    ASSERT_OK(gradwire_table_abort(table, "the features are gone"));
  }
  expect_error(gradwire_table_synchronize(table), GRADWIRE_ABORTED, "the features are gone");
}

TEST_F(CTableErrors, ResultsOfOlderProgramsAreNotOverrun) {
  make(options_of());
  gradwire_row_statistics found{};
  std::memset(&found, 0x5a, sizeof found);
  found.struct_size = offsetof(gradwire_row_statistics, rows_own);
  ASSERT_OK(gradwire_table_statistics(table, &found));
  EXPECT_EQ(found.rows_pulled, 0U);
  EXPECT_EQ(found.rows_own, 0x5a5a5a5a5a5a5a5aU);
}

}  // namespace
}  // namespace gradwire::test
