// Tests calls that tables of a session refuse, differences between ranks that they notice, and steps without a push.
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

// Otherwise each of these calls would wait for a new world. Mutation tried: without the check of calls.
TEST(SessionTables, NothingElseCommunicatesBetweenPullAndFinish) {
  auto processes = make_inproc_processes(1);
  std::vector<float> value(3);
  Session session(std::move(processes[0]), Policy{});
  const TableId table = session.add_table({.name = "t", .rows = 10, .width = 1});
  const std::vector<std::uint64_t> ids{1, 2, 3};
  session.broadcast(view(value.data(), value.size()));
  ASSERT_TRUE(session.pull(table, ids, value));
  const auto calls = {error_of([&] { session.broadcast(view(value.data(), value.size())); }),
                      error_of([&] { session.sync_parameters(); }), error_of([&] { session.reserve(); })};
  for (const Error& error : calls) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("before pull()"), std::string::npos) << error.what();
  }
  session.push(table, ids, value);
  session.finish();
  session.broadcast(view(value.data(), value.size()));
  session.push(table, ids, value);
  EXPECT_EQ(error_of([&] { session.reserve(); }).code(), ErrorCode::invalid_argument);
}

TEST(SessionTables, ASpareWithoutTheTableIsTurnedAway) {
  TablePlan plan{.ranks = 3, .spares = 1, .leaves_before = {{1, 2}}};
  plan.errors = {ErrorCode::mismatch};
  plan.otherwise[3] = [](TablePlan& own) { own.tables.pop_back(); };
  std::vector<TableFate> fates = run(plan);
  ASSERT_TRUE(fates[3].error);
  EXPECT_NE(std::string(fates[3].error->what()).find("table 1"), std::string::npos) << fates[3].error->what();
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 2}));
  expect_dense(plan, fates);
}

TEST(SessionTables, OptionsThatDifferAreNamed) {
  const auto error_with = [](const std::function<void(TablePlan&)>& otherwise) {
    std::vector<Error> errors(2, {ErrorCode::internal, ""});
    run_ranks(2, [&](std::shared_ptr<Transport> transport) {
      TablePlan plan;
      const auto rank = static_cast<std::size_t>(transport->rank());
      if (rank == 1) {
        otherwise(plan);
      }
      Session session(std::move(transport), Policy{});
      for (const SessionTableOptions& options : plan.tables) {
        session.add_table(options);
      }
      errors[rank] = error_of([&] { session.finish(); });
    });
    const std::size_t who = errors[0].code() == ErrorCode::mismatch ? 0 : 1;
    EXPECT_EQ(errors[who].code(), ErrorCode::mismatch);
    EXPECT_TRUE(errors[1 - who].code() == ErrorCode::mismatch || errors[1 - who].code() == ErrorCode::aborted);
    return std::string(errors[0].what());
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(error_with([](TablePlan& own) { own.tables[1].width = 6; }),
         "table 1 \"items\", width: rank 0 has 5, rank 1 has 6");
  expect(error_with([](TablePlan& own) { own.tables[0].copies = 2; }),
         "table 0 \"users\", copies: rank 0 has 1, rank 1 has 2");
  expect(error_with([](TablePlan& own) { own.tables[1].name = "goods"; }),
         "table 1: rank 0 has \"items\", rank 1 has \"goods\"");
  expect(error_with([](TablePlan& own) { own.tables.pop_back(); }), "table 1 is on rank 0 alone, not on rank 1");
}

// Ranks in different calls find that out without waiting for a timeout.
TEST(SessionTables, CallsThatDifferAreNoticed) {
  const auto expect_noticed = [](const std::function<void(Session&, const std::vector<TableId>&)>& call) {
    std::vector<Error> errors(2, {ErrorCode::internal, ""});
    run_ranks(2, [&](std::shared_ptr<Transport> transport) {
      const auto rank = static_cast<std::size_t>(transport->rank());
      Session session(std::move(transport), Policy{});
      std::vector<TableId> tables;
      for (const SessionTableOptions& options : TablePlan().tables) {
        tables.push_back(session.add_table(options));
      }
      errors[rank] = error_of([&] { call(session, tables); });
    });
    const std::size_t who = errors[0].code() == ErrorCode::mismatch ? 0 : 1;
    EXPECT_EQ(errors[who].code(), ErrorCode::mismatch) << errors[who].what();
    EXPECT_NE(std::string(errors[who].what()).find("is in another call"), std::string::npos) << errors[who].what();
  };
  expect_noticed([](Session& session, const std::vector<TableId>& tables) {
    (void)session.pull(tables[static_cast<std::size_t>(session.rank())], {}, {});
  });
  expect_noticed([](Session& session, const std::vector<TableId>& tables) {
    session.rank() == 0 ? (void)session.pull(tables[0], {}, {}) : (void)session.finish();
  });
  expect_noticed([](Session& session, const std::vector<TableId>& /*tables*/) {
    if (session.rank() == 0) {
      session.set_weight(2);
    }
    session.finish();
  });
}

// Some ranks pull before and after ranks have agreed on tables. Mutations tried: the agreement does not name its
// subject; a value that is no size is not taken for another call.
TEST(SessionTables, PullsOfSomeRanksAreNamed) {
  for (const bool agreed : {false, true}) {
    std::vector<Error> errors(2, {ErrorCode::internal, ""});
    run_ranks(2, [&](std::shared_ptr<Transport> transport) {
      const auto rank = static_cast<std::size_t>(transport->rank());
      Session session(std::move(transport), Policy{});
      std::vector<float> gradient(4);
      const TensorId tensor = session.add("w", view(gradient.data(), gradient.size()));
      const TableId table = session.add_table({.name = "t", .rows = 10, .width = 1});
      if (agreed) {
        ASSERT_TRUE(session.pull(table, {}, {}));
      }
      errors[rank] = error_of([&] {
        if (rank == 0) {
          (void)session.pull(table, {}, {});
        } else if (agreed) {
          session.broadcast(view(gradient.data(), gradient.size()));
        } else {
          session.ready(tensor);
          session.finish();
        }
      });
    });
    for (const Error& error : errors) {
      const std::string text = error.what();
      EXPECT_TRUE(error.code() == ErrorCode::mismatch || error.code() == ErrorCode::aborted) << text;
      EXPECT_NE(text.find("is in another call; "), std::string::npos) << text;
      EXPECT_EQ(text.find("alone"), std::string::npos) << text;
      EXPECT_EQ(text.find("announced"), std::string::npos) << text;
    }
  }
}

TEST(SessionTables, RefuseWhatCannotWork) {
  run_ranks(1, [](std::shared_ptr<Transport> transport) {
    const SessionTableOptions options{.name = "t", .rows = 10, .width = 2};
    Session session(std::move(transport), Policy{});
    std::vector<float> gradient(4);
    const TensorId tensor = session.add("w", view(gradient.data(), gradient.size()));
    const TableId table = session.add_table(options);
    const auto refused = [&](const std::string& part, const std::function<void()>& call) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    };
    const std::vector<std::uint64_t> ids{1, 10};
    const std::vector<std::uint64_t> good{1, 1};
    std::vector<float> rows(4);
    refused("already", [&] { session.add_table(options); });
    refused("id 10", [&] { (void)session.pull(table, ids, rows); });
    refused("id 10", [&] { session.push(table, ids, rows); });
    refused("need 4 elements, not 3", [&] { (void)session.pull(table, good, std::span(rows).first(3)); });
    refused("need 4 elements, not 3", [&] { session.push(table, good, std::span(rows).first(3)); });
    refused("there is no table 1", [&] { session.push(TableId{1}, good, rows); });
    const ScratchFolder saved;
    session.save(saved.path());
    session.push(table, good, std::vector<float>{1, 2, 3, 4});
    refused("pull() or push()", [&] { session.load(saved.path()); });
    refused("id 1 has NaN", [&] { session.push(table, good, std::vector<float>{1, NAN, 0, 0}); });
    session.ready(tensor);
    refused("pull: step 0 is under way", [&] { (void)session.pull(table, good, rows); });
    session.finish();
    ASSERT_TRUE(session.pull(table, good, rows));
    EXPECT_EQ(rows, (std::vector<float>{-0.04F, -0.06F, -0.04F, -0.06F})) << "nothing of the refused pushes was kept";
    refused("after the plan was made", [&] { session.add_table({.name = "late", .rows = 1, .width = 1}); });
  });
}

// If a rank's gradients have NaN, the step is skipped together with its pushes.
TEST(SessionTables, ASkippedStepPushesNothing) {
  run_ranks(2, [](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy{}, {.nonfinite = Nonfinite::skip});
    std::vector<float> gradient(4);
    const TensorId tensor = session.add("w", view(gradient.data(), gradient.size()));
    const TableId table = session.add_table({.name = "t", .rows = 10, .width = 1, .learning_rate = 1});
    const std::vector<std::uint64_t> ids{3};
    for (int step = 0; step < 3; ++step) {
      gradient[0] = step == 1 && session.rank() == 0 ? NAN : 0;
      session.push(table, ids, std::vector<float>{1});
      session.ready(tensor);
      EXPECT_EQ(session.finish().skipped, step == 1);
    }
    std::vector<float> row(1);
    ASSERT_TRUE(session.pull(table, ids, row));
    EXPECT_EQ(row[0], -2);
  });
}

}  // namespace
}  // namespace gradwire::test
