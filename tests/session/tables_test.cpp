// Tests tables that count with the steps of a session: exactly synchronous, and whole after ranks have ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "table_job.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

int environment_int(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Mutations tried: half of the ranks add up in another order; pushes go only to the first holder.
TEST(SessionTables, EqualDenseOnes) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::uint32_t copies : {1U, 2U, 3U}) {
      for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
        for (const bool weighted : {false, true}) {
          SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(copies) + " copies" +
                       (weighted ? ", weighted" : ""));
          TablePlan plan{.reduction = reduction, .weighted = weighted, .ranks = ranks};
          for (SessionTableOptions& options : plan.tables) {
            options.copies = copies;
          }
          const std::vector<TableFate> fates = run(plan);
          ASSERT_EQ(survivors_of(fates).size(), static_cast<std::size_t>(ranks));
          expect_dense(plan, fates);
        }
      }
    }
  }
}

// A session over a plain transport, without any tensor: one copy, and pull() is never false.
TEST(SessionTables, WorkWithoutProcessesAndWithoutTensors) {
  const TablePlan plan;
  std::vector<std::vector<std::vector<float>>> rows(3);
  std::vector<std::uint64_t> held(3);
  run_ranks(3, [&](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy{}, {.reduction = plan.reduction});
    const auto self = static_cast<Id>(session.rank());
    std::vector<TableId> tables;
    for (const SessionTableOptions& options : plan.tables) {
      tables.push_back(session.add_table(options));
    }
    for (std::uint64_t step = 0; step < plan.steps; ++step) {
      for (std::size_t t = 0; t < tables.size(); ++t) {
        const std::vector<std::uint64_t> ids = ids_of(plan.tables[t], self, step, plan.ids_of_a_step);
        std::vector<float> own(ids.size() * plan.tables[t].width);
        ASSERT_TRUE(session.pull(tables[t], ids, own));
        const std::vector<float> gradients = gradients_of(plan.tables[t], ids, own, self, step);
        const std::size_t half = ids.size() / 2;  // in two calls
        session.push(tables[t], std::span(ids).first(half), std::span(gradients).first(half * plan.tables[t].width));
        session.push(tables[t], std::span(ids).subspan(half),
                     std::span(gradients).subspan(half * plan.tables[t].width));
      }
      EXPECT_EQ(session.finish().step, step);
    }
    for (std::size_t t = 0; t < tables.size(); ++t) {
      std::vector<std::uint64_t> ids(plan.tables[t].rows);
      std::iota(ids.begin(), ids.end(), 0U);
      rows[self].emplace_back(ids.size() * plan.tables[t].width);
      ASSERT_TRUE(session.pull(tables[t], ids, rows[self].back()));
      ASSERT_TRUE(session.pull(tables[t], {}, {}));
    }
    held[self] = session.table_statistics(tables[0]).rows_held;
    EXPECT_NE(session.explain().find("on 1 rank each"), std::string::npos) << session.explain();
  });
  const auto wanted = dense_rows(plan, std::vector<std::vector<Id>>(plan.steps, {0, 1, 2}));
  for (const auto& own : rows) {
    EXPECT_TRUE(own == wanted);
  }
  EXPECT_LE(held[0] + held[1] + held[2], plan.tables[0].rows);
}

/// A plan whose tables have ten times as many rows as fit into memory, and of which most rows are written early.
TablePlan plan_with_stores(const ScratchFolder& folder) {
  TablePlan plan;
  plan.tables = {{.name = "users",
                  .rows = 4000,
                  .width = 256,
                  .optimizer = RowOptimizer::adagrad,
                  .initial_scale = 0.5F,
                  .seed = 7},
                 {.name = "items", .rows = 35, .width = 5, .learning_rate = 0.1F}};
  plan.tables[0].store = "file:" + folder.path().string();
  plan.tables[0].memory = 1200 << 10;
  plan.ids_of_a_step = 700;
  return plan;
}

TEST(SessionTables, WithAStoreEqualDenseOnes) {
  const ScratchFolder folder;
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    TablePlan plan = plan_with_stores(folder);
    plan.ranks = ranks;
    const std::vector<TableFate> fates = run(plan);
    ASSERT_EQ(survivors_of(fates).size(), static_cast<std::size_t>(ranks));
    expect_dense(plan, fates);
    for (const TableFate& fate : fates) {
      EXPECT_GT(fate.statistics[0].store.reads, 0U);
      EXPECT_GT(fate.statistics[0].store.rows_in_file, 2 * fate.statistics[0].store.rows_in_memory);
      EXPECT_LE(fate.statistics[0].store.memory_bytes, plan.tables[0].memory);
      EXPECT_EQ(fate.statistics[1].store.rows_in_memory, fate.statistics[1].rows_held);
    }
  }
}

TEST(SessionTables, WithAStoreSurviveDeathsJoinsAndCheckpoints) {
  const ScratchFolder folder;
  TablePlan plan = plan_with_stores(folder);
  const std::int64_t operations = run(plan)[2].operations;
  for (int at = 1; at <= std::max(2, 4 / kStepShare); ++at) {
    plan.dies_after = {{2, operations * at / 5}};
    SCOPED_TRACE("dies at operation " + std::to_string(plan.dies_after[2]));
    const std::vector<TableFate> fates = run(plan);
    ASSERT_GE(survivors_of(fates).size(), 3U);
    expect_dense(plan, fates);
  }
  plan = plan_with_stores(folder);
  plan.steps = 40;
  plan.ranks = 2;
  plan.joins = 1;
  plan.ids_of_a_step = 100;
  plan.leaves_before = {{1, 30}};
  expect_dense(plan, run(plan));

  const ScratchFolder checkpoints;
  plan = plan_with_stores(folder);
  plan.steps = 2;
  plan.checkpoints = checkpoints.path();
  std::vector<std::vector<Id>> took_part = run(plan)[0].took_part;
  took_part.back().clear();  // the step read all rows, and pushed nothing
  for (const int ranks : {3, 2}) {
    plan.ranks = ranks;
    plan.steps = took_part.size() + 1;
    plan.tables[0].store = ranks == 3 ? plan.tables[0].store : "";  // a state does not depend on the store
    plan.tables[0].memory = ranks == 3 ? plan.tables[0].memory : 0;
    const std::vector<TableFate> fates = run(plan);
    EXPECT_EQ(fates[0].restored, took_part.size());
    took_part.insert(took_part.end(), fates[0].took_part.begin() + static_cast<std::ptrdiff_t>(took_part.size()),
                     fates[0].took_part.end());
    EXPECT_TRUE(fates[0].rows == dense_rows(plan, took_part));
    took_part.back().clear();
  }
}

// A session's reports say where the rows of its tables lie.
TEST(SessionTables, ReportWhereRowsLie) {
  const ScratchFolder folder;
  const TablePlan plan = plan_with_stores(folder);
  run_ranks(2, [&](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy{}, {});
    const TableId table = session.add_table(plan.tables[0]);
    EXPECT_NE(session.explain().find("at most 1.172MiB of memory on this rank, the other rows in file:"),
              std::string::npos)
        << session.explain();
    std::vector<std::uint64_t> ids(2000);
    std::iota(ids.begin(), ids.end(), 0U);
    std::vector<float> rows(ids.size() * 256);
    ASSERT_TRUE(session.pull(table, ids, rows));
    session.push(table, ids, rows);
    static_cast<void>(session.finish());
    const SessionStatistics statistics = session.statistics();
    ASSERT_EQ(statistics.tables.size(), 1U);
    EXPECT_EQ(statistics.tables[0].name, "users");
    EXPECT_EQ(statistics.tables[0].rows_held, session.table_statistics(table).rows_held);
    EXPECT_GT(statistics.tables[0].rows_in_file, 100U);
    EXPECT_NE(statistics.to_json().find("\"rows_in_file\": " + std::to_string(statistics.tables[0].rows_in_file)),
              std::string::npos);
    EXPECT_NE(statistics.to_text().find("rows in memory ("), std::string::npos);
  });
}

// A codec drops the same from all copies: ranks read equal rows from their own copies, which are close to the dense
// ones.
TEST(SessionTables, FewBitsLeaveCopiesAlike) {
  for (const char* codec : {"bf16", "int8"}) {
    SCOPED_TRACE(codec);
    TablePlan plan{.ranks = 3};
    for (SessionTableOptions& options : plan.tables) {
      options.gradient_codec = codec;
      options.copies = 3;
    }
    const std::vector<TableFate> fates = run(plan);
    const auto wanted = dense_rows(plan, fates[0].took_part);
    EXPECT_TRUE(fates[0].rows == fates[1].rows && fates[0].rows == fates[2].rows);
    EXPECT_FALSE(fates[0].rows == wanted);
    for (std::size_t i = 0; i < wanted[1].size(); ++i) {
      EXPECT_NEAR(fates[0].rows[1][i], wanted[1][i], 0.05F);
    }
    for (SessionTableOptions& options : plan.tables) {
      options.gradient_codec = CodecSpec::exact();
      options.codec = codec;
      options.copies = 1;
    }
    const std::vector<TableFate> rounded = run(plan);
    for (std::size_t i = 0; i < wanted[1].size(); ++i) {
      EXPECT_NEAR(rounded[0].rows[1][i], wanted[1][i], 0.05F);
    }
  }
}

constexpr const char* kTablePolicies[] = {
    "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n",
    "[[rule]]\nmatch = \"*\"\nsync = { every = 3 }\n",
    "[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\nsync = { async = true, staleness = 2 }\n",
};

// Compares with the dense computation over the ranks that took part in the steps that counted: nothing of a step that
// was made again remains, and no push of a step that counted is lost. Mutations tried: pushes are applied before the
// step counts; pushes of a step that is made again are kept; rows, or their optimizer state, do not move.
TEST(SessionTables, ADeathAtAnyMomentLosesNoPushThatCounted) {
  const int moments = environment_int("GRADWIRE_SEEDS", std::max(4, 24 / kStepShare));
  int anew = 0;
  for (const char* policy : kTablePolicies) {
    TablePlan plan{.policy = policy, .weighted = policy == kTablePolicies[1]};
    const std::int64_t operations = run(plan)[2].operations;
    ASSERT_GT(operations, 50);
    for (std::int64_t at = 1; at < operations; at += std::max<std::int64_t>(1, operations / moments)) {
      SCOPED_TRACE(std::string(policy) + ", dies at operation " + std::to_string(at));
      plan.dies_after = {{2, at}};
      const std::vector<TableFate> fates = run(plan);
      ASSERT_GE(survivors_of(fates).size(), 3U);
      expect_dense(plan, fates);
      for (const Id id : {0, 1, 3}) {
        anew += static_cast<int>(fates[id].pulls_anew.size());
      }
    }
  }
  EXPECT_TRUE(moments < 20 || anew > 0) << "some died in pull()";
}

// Any number of ranks end, at any time: if copies are left, the remaining ranks go on with whole tables; otherwise all
// of them end with an error that names the table. Mutations tried: moved rows count before all have them; the ring goes
// by ranks instead of processes.
TEST(SessionTables, ManyDeathsEndItOrLoseNothing) {
  const int seeds = environment_int("GRADWIRE_SEEDS", 60 / kStepShare);
  int ended = 0;
  int went_on = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    TablePlan plan{.policy = kTablePolicies[random() % std::size(kTablePolicies)], .ranks = 5};
    plan.errors = {ErrorCode::too_few};
    const std::size_t deaths = 2 + random() % 2;
    const std::int64_t first = 1 + static_cast<std::int64_t>(random() % 500);
    while (plan.dies_after.size() < deaths) {  // some die soon after one another
      plan.dies_after[static_cast<Id>(random() % 5)] = first + static_cast<std::int64_t>(random() % 120);
    }
    const std::vector<TableFate> fates = run(plan);
    const bool too_few = std::ranges::any_of(fates, [](const TableFate& fate) { return fate.error && !fate.dead; });
    if (!too_few) {
      ++went_on;
      expect_dense(plan, fates);
      continue;
    }
    ++ended;
    for (const TableFate& fate : fates) {
      EXPECT_TRUE(fate.dead ||
                  (fate.error && std::string(fate.error->what()).find("of its rows are gone") != std::string::npos));
    }
  }
  EXPECT_TRUE(seeds < 30 || (went_on > 0 && ended > 0)) << went_on << " went on, " << ended << " ended";
}

TEST(SessionTables, AllHoldersOfRowsEnd) {
  TablePlan plan{.leaves_before = {{1, 3}, {3, 3}}};
  plan.errors = {ErrorCode::too_few};
  const std::vector<TableFate> fates = run(plan);
  int told = 0;
  for (const Id id : {0, 2}) {
    if (fates[id].error) {
      const std::string text = fates[id].error->what();
      EXPECT_NE(text.find("table \"users\": "), std::string::npos) << text;
      EXPECT_NE(text.find("% of its rows are gone: all 2 ranks"), std::string::npos) << text;
      EXPECT_NE(text.find("checkpoint"), std::string::npos) << text;
      ++told;
    }
  }
  // The ranks may have ended one after the other, with time to copy between.
  EXPECT_TRUE(told == 2 || fates[0].took_part[3].size() == 2);
  if (told == 0) {
    expect_dense(plan, fates);
  }
  for (SessionTableOptions& options : plan.tables) {
    options.copies = 3;
  }
  const std::vector<TableFate> whole = run(plan);
  EXPECT_EQ(survivors_of(whole), (std::vector<Id>{0, 2}));
  expect_dense(plan, whole);
  for (SessionTableOptions& options : plan.tables) {
    options.copies = 1;
  }
  plan.leaves_before = {{1, 3}};
  for (const Id id : {0, 2, 3}) {
    ASSERT_TRUE(run(plan)[id].error) << "with one copy any death ends the job";
  }
}

// No row was written yet, so none can be lost.
TEST(SessionTables, ManyMayEndBeforeTheFirstStepCounts) {
  const TablePlan plan{.leaves_before = {{1, 0}, {3, 0}}};
  const std::vector<TableFate> fates = run(plan);
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 2}));
  expect_dense(plan, fates);
}

// A whole node ends: the copies are on different nodes. Mutation tried: the ring ignores nodes.
TEST(SessionTables, ANodeMayEnd) {
  TablePlan plan{.ranks = 6, .leaves_before = {{2, 3}, {3, 3}}, .node = 2};
  const std::vector<TableFate> fates = run(plan);
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 4, 5}));
  expect_dense(plan, fates);
}

// A spare gets its share of rows, so other holders may end afterwards. Mutation tried: a rank that no longer holds a
// row keeps it.
TEST(SessionTables, SparesHoldTheirShare) {
  const int moments = environment_int("GRADWIRE_SEEDS", std::max(2, 12 / kStepShare));
  TablePlan plan{.steps = 8, .ranks = 3, .spares = 2};
  const std::int64_t operations = run(plan)[2].operations;
  int came = 0;
  for (std::int64_t at = operations / 5; at < 3 * operations / 5;
       at += std::max<std::int64_t>(1, operations / moments)) {
    SCOPED_TRACE("dies at operation " + std::to_string(at));
    plan.dies_after = {{2, at}};
    plan.leaves_before = {{0, 7}};
    const std::vector<TableFate> fates = run(plan);
    expect_dense(plan, fates);
    came += fates[3].rows.empty() ? 0 : 1;
    came += fates[4].rows.empty() ? 0 : 1;
  }
  EXPECT_GT(came, moments / 2);
}

// The world grows, and then ranks of the start end: other ranks hold their rows.
TEST(SessionTables, ProcessesThatJoinHoldTheirShare) {
  TablePlan plan{.steps = 70, .ranks = 3, .joins = 2, .leaves_before = {{1, 50}, {0, 60}}};
  const std::vector<TableFate> fates = run(plan);
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{2, 3, 4}));
  EXPECT_EQ(fates[2].took_part.at(49), (std::vector<Id>{0, 1, 2, 3, 4}));
  EXPECT_EQ(fates[2].took_part.back(), (std::vector<Id>{2, 3, 4}));
  expect_dense(plan, fates);
}

// A different number of ranks goes on from a checkpoint, and a rank may die meanwhile.
TEST(SessionTables, GoOnFromACheckpoint) {
  const ScratchFolder folder;
  const TablePlan before{.steps = 3, .ranks = 4, .leaves_before = {{1, 2}}, .checkpoints = folder.path()};
  const std::vector<TableFate> first = run(before);
  std::vector<std::vector<Id>> took_part = first[0].took_part;
  took_part.back().clear();  // the step read all rows, and pushed nothing
  for (const int ranks : {3, 2, 5}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    TablePlan plan{.ranks = ranks, .checkpoints = folder.path()};
    plan.steps = took_part.size() + 2;
    if (ranks == 5) {
      plan.dies_in = {{3, {took_part.size() + 1, 5}}};
    }
    const std::vector<TableFate> fates = run(plan);
    EXPECT_EQ(fates[0].restored, took_part.size());
    took_part.insert(took_part.end(), fates[0].took_part.begin() + static_cast<std::ptrdiff_t>(took_part.size()),
                     fates[0].took_part.end());
    const auto wanted = dense_rows(plan, took_part);
    took_part.back().clear();
    for (const Id id : survivors_of(fates)) {
      EXPECT_TRUE(fates[id].rows == wanted) << id;
    }
    EXPECT_EQ(survivors_of(fates).size(), ranks == 5 ? 4U : static_cast<std::size_t>(ranks));
  }
  TablePlan other{.ranks = 2, .checkpoints = folder.path()};
  other.tables[1].width = 4;
  other.errors = {ErrorCode::mismatch, ErrorCode::aborted, ErrorCode::transport};
  const std::vector<TableFate> fates = run(other);
  ASSERT_TRUE(fates[0].error);
  EXPECT_NE(std::string(fates[0].error->what()).find("table 1 is \"items\" 35 x 5, sgd there"), std::string::npos)
      << fates[0].error->what();
}

// A file of another layout has the same step and size: rows that it should have may be in none of the files.
TEST(SessionTables, FilesOfTwoWorldsAreNotMixed) {
  const ScratchFolder one;
  const ScratchFolder other;
  for (const auto& [folder, gone] : {std::pair(&one, Id{1}), std::pair(&other, Id{2})}) {
    run({.steps = 3, .leaves_before = {{gone, 2}}, .checkpoints = folder->path()});
  }
  const auto folder_of = [](const ScratchFolder& folder) {  // folder of its last step
    std::filesystem::path last;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      last = std::max(last, entry.path());
    }
    return last;
  };
  const std::filesystem::path newest = folder_of(one);
  std::filesystem::copy_file(folder_of(other) / "rank-2-of-3.gradwire", newest / "rank-2-of-3.gradwire",
                             std::filesystem::copy_options::overwrite_existing);
  const std::vector<TableFate> fates = run({.steps = 6, .ranks = 2, .checkpoints = one.path()});
  EXPECT_EQ(fates[0].restored, 3U) << "the previous checkpoint counts";
}

// Ranks die at any time from the start of a job that goes on from a checkpoint.
TEST(SessionTables, RanksMayDieWhileTheyAreRestored) {
  const ScratchFolder folder;
  run({.steps = 2, .checkpoints = folder.path()});
  std::filesystem::path copy = folder.path();
  copy += "-copy";
  std::int64_t operations = 0;
  for (std::int64_t at = 0; at <= operations; at += std::max<std::int64_t>(1, operations / (16 / kStepShare))) {
    SCOPED_TRACE("dies at operation " + std::to_string(at));
    std::filesystem::remove_all(copy);
    std::filesystem::copy(folder.path(), copy, std::filesystem::copy_options::recursive);
    TablePlan plan{.steps = 4, .ranks = 5, .checkpoints = copy};
    if (at > 0) {
      plan.dies_after = {{3, at}};
    }
    const std::vector<TableFate> fates = run(plan);
    operations = at == 0 ? fates[3].operations : operations;
    std::vector<std::vector<Id>> took_part(2, {0, 1, 2, 3});
    took_part.emplace_back();
    took_part.push_back(fates[0].took_part.at(3));
    for (const Id id : survivors_of(fates)) {
      EXPECT_EQ(fates[id].restored, 3U);
      EXPECT_TRUE(fates[id].rows == dense_rows(plan, took_part)) << id;
    }
    EXPECT_GE(survivors_of(fates).size(), 4U);
  }
  std::filesystem::remove_all(copy);
}

}  // namespace
}  // namespace gradwire::test
