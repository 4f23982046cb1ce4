// Tests tables of a session through the C API: they count by its steps, and a wrong call has no effect.
#include <cmath>
#include <string>

#include "c_side.h"
#include "c_table_support.hpp"

namespace gradwire::test {
namespace {

class CSessionTable : public ::testing::Test {
 protected:
  void SetUp() override {
    auto options = sized<gradwire_session_options>();
    options.timeout_ms = 60000;
    options.reduction = GRADWIRE_SUM;
    ASSERT_OK(gradwire_session_create_mpi(MPI_COMM_WORLD, nullptr, &options, &session));
  }
  void TearDown() override { gradwire_session_destroy(session); }

  [[nodiscard]] Rows pull(std::uint32_t table, const Ids& ids) const {
    Rows rows(ids.size() * kWidth, -77.0F);
    EXPECT_OK(gradwire_session_pull(session, table, ids.data(), ids.size(), rows.data()));
    return rows;
  }
  [[nodiscard]] gradwire_status push(std::uint32_t table, const Ids& ids, const Rows& gradients) const {
    return gradwire_session_push(session, table, ids.data(), ids.size(), gradients.data());
  }

  gradwire_session* session = nullptr;
};

TEST_F(CSessionTable, ServesAProgramInC) {
  const std::string folder = shared_folder();
  EXPECT_EQ(c_side_session_table(MPI_COMM_WORLD, folder.c_str()), 0) << gradwire_last_error();
  remove_shared(folder);
}

TEST_F(CSessionTable, PushesCountWithSteps) {
  const auto options = options_of("first");
  ASSERT_OK(gradwire_session_add_table(session, nullptr, &options, nullptr));
  auto wide = options_of("second");
  wide.width = 3;
  wide.copies = 2;
  std::uint32_t table = 99;
  ASSERT_OK(gradwire_session_add_table(session, nullptr, &wide, &table));
  EXPECT_EQ(table, 1U);
  const auto ranks = static_cast<float>(world_size());
  const auto own = static_cast<float>(world_rank() + 1);
  const float sum = ranks * (ranks + 1) / 2;
  ASSERT_OK(push(0, {7, 3, 7}, {own, 2 * own, 10 * own, 0, own, own}));
  ASSERT_OK(push(0, {3}, {own, 0}));
  ASSERT_OK(push(0, {}, {}));
  const std::uint64_t id = 59;
  ASSERT_OK(gradwire_session_push(session, 1, &id, 1, Rows{1, 2, 3}.data()));
  ASSERT_OK(gradwire_session_finish(session, nullptr));
  EXPECT_EQ(pull(0, {3, 7, 50}), (Rows{-11 * sum, 0, -2 * sum, -3 * sum, 0, 0}));
  Rows row(3);
  ASSERT_OK(gradwire_session_pull(session, 1, &id, 1, row.data()));
  EXPECT_EQ(row, (Rows{-ranks, -2 * ranks, -3 * ranks}));
  ASSERT_OK(gradwire_session_pull(session, 1, nullptr, 0, nullptr));

  auto found = sized<gradwire_row_statistics>();
  ASSERT_OK(gradwire_session_table_statistics(session, 0, &found));
  EXPECT_EQ(found.rows_pushed, 2U) << "duplicates were merged";
  EXPECT_EQ(found.rows_pulled, 3U);
  EXPECT_EQ(found.rows_own + found.rows_received, 3U);
  ASSERT_OK(gradwire_session_table_statistics(session, 1, &found));
  EXPECT_LE(found.rows_held, 1U);
  EXPECT_TRUE(world_size() > 2 || found.rows_held == 1) << "there are two copies";
}

TEST_F(CSessionTable, APolicySaysHowItTravels) {
  gradwire_policy* policy = nullptr;
  ASSERT_OK(gradwire_policy_parse(
      "[[rule]]\nmatch = \"users\"\ncodec = \"int8\"\nsync = { rows = true, staleness = 0 }\n", nullptr, &policy));
  auto options = options_of("users");
  std::uint32_t table = 99;
  ASSERT_OK(gradwire_session_add_table(session, policy, &options, &table));
  options.name = "others";
  expect_invalid(gradwire_session_add_table(session, policy, &options, nullptr), "others");
  gradwire_policy_destroy(policy);
  if (world_rank() == 0) {
    ASSERT_OK(push(table, {4}, {127, 1.3F}));  // int8: steps of 1
  }
  ASSERT_OK(gradwire_session_finish(session, nullptr));
  EXPECT_EQ(pull(table, {4}), (Rows{-127, -1}));
}

TEST_F(CSessionTable, WhatCannotWorkHarmsNobody) {
  const std::string name = "gradwire_session_";
  const auto add = [&](const gradwire_table_options& options) {
    return gradwire_session_add_table(session, nullptr, &options, nullptr);
  };
  auto bad = options_of();
  bad.staleness = 2;
  expect_invalid(add(bad), "staleness is for a Table of its own");
  bad = options_of();
  bad.reserved = 1;
  expect_error(add(bad), GRADWIRE_UNSUPPORTED, name + "add_table: reserved is not 0");
  expect_invalid(gradwire_session_add_table(session, nullptr, nullptr, nullptr), name + "add_table: options is NULL");
  const auto good = options_of();
  expect_invalid(gradwire_session_add_table(nullptr, nullptr, &good, nullptr), name + "add_table: session is NULL");
  ASSERT_OK(add(good));
  expect_invalid(add(good), "there is a table \"table\" already");

  const std::uint64_t id = 3;
  const std::uint64_t outside = kRows;
  Rows rows(2);
  auto found = sized<gradwire_row_statistics>();
  expect_invalid(gradwire_session_pull(nullptr, 0, &id, 1, rows.data()), name + "pull: session is NULL");
  expect_invalid(gradwire_session_pull(session, 1, &id, 1, rows.data()), "there is no table 1");
  expect_invalid(gradwire_session_pull(session, 0, nullptr, 1, rows.data()), name + "pull: ids is NULL");
  expect_invalid(gradwire_session_pull(session, 0, &id, 1, nullptr), name + "pull: rows is NULL");
  expect_invalid(gradwire_session_pull(session, 0, &outside, 1, rows.data()), "id 60");
  expect_invalid(gradwire_session_push(nullptr, 0, &id, 1, rows.data()), name + "push: session is NULL");
  expect_invalid(gradwire_session_push(session, 1, &id, 1, rows.data()), "there is no table 1");
  expect_invalid(gradwire_session_push(session, 0, &id, 1, nullptr), name + "push: gradients is NULL");
  expect_invalid(gradwire_session_push(session, 0, &id, 1, Rows{1, NAN}.data()), "the gradient for id 3 has NaN");
  expect_invalid(gradwire_session_table_statistics(nullptr, 0, &found), name + "table_statistics: session is NULL");
  expect_invalid(gradwire_session_table_statistics(session, 0, nullptr), name + "table_statistics: statistics is NULL");
  expect_invalid(gradwire_session_table_statistics(session, 1, &found), "there is no table 1");

  ASSERT_OK(push(0, {3}, {1, 2}));
  ASSERT_OK(gradwire_session_finish(session, nullptr));
  const auto ranks = static_cast<float>(world_size());
  EXPECT_EQ(pull(0, {3}), (Rows{-ranks, -2 * ranks})) << "nothing of the refused calls was kept";
}

}  // namespace
}  // namespace gradwire::test
