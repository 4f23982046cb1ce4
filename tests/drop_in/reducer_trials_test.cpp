// Tests calls that are made both ways before one is chosen: no bit changes, and an obstacle on one rank stops all.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/drop_in/reducer_harness.hpp"

namespace gradwire::drop_in {
namespace {

// Mutation tried: the compressed call writes into the job's buffer.
TEST(HostReducer, TrialsChangeNoBitAndAtMostElevenAreMade) {
  const Configuration configuration = configuration_of(kAutomatic);
  run_jobs(3, configuration, [&](Job& job, int rank) {
    const std::vector<float> wanted = exact_sum(3);
    for (int call = 0; call < 200; ++call) {
      std::vector<float> values = values_of(rank);
      const HostReducer::Route route = job.reduce(values, 1e-12);  // the compressed call is never faster
      EXPECT_FALSE(route.decision.compress);
      EXPECT_EQ(values, wanted) << call;
    }
    EXPECT_GT(job.trials, 0);
    EXPECT_LE(job.trials, 11);
    for (const auto& [what, totals] : job.rank.ledger.classes()) {
      EXPECT_EQ(totals.lossy_calls, 0U);
    }
    EXPECT_TRUE(job.rank.reducer.take_lines().empty());
  });
}

TEST(HostReducer, WhatIsChosenIsTimedBothWaysAndToldOnce) {
  const Configuration configuration = configuration_of(kAutomatic);
  run_jobs(2, configuration, [&](Job& job, int rank) {
    const std::vector<float> wanted = exact_sum(2);
    std::uint64_t compressed = 0;
    std::vector<std::string> lines;
    for (int call = 0; call < 60; ++call) {
      std::vector<float> values = values_of(rank);
      const HostReducer::Route route = job.reduce(values, 10);
      if (route.turn.timed) {
        job.rank.reducer.measured(1e-3);
      }
      compressed += route.decision.compress ? 1 : 0;
      EXPECT_EQ(values == wanted, !route.decision.compress);
      for (std::string& line : job.rank.reducer.take_lines()) {
        lines.push_back(std::move(line));
      }
    }
    EXPECT_EQ(compressed, 59U) << "the first trial took seconds, and was clear";
    for (const auto& [what, totals] : job.rank.ledger.classes()) {
      if (what.codec == "int8") {
        ASSERT_TRUE(totals.measured);
        EXPECT_EQ(totals.measured->passed, 10);
        EXPECT_EQ(totals.lossy_calls, compressed);
        ASSERT_TRUE(totals.largest_error);
        EXPECT_GT(*totals.largest_error, 1e-4);
        EXPECT_LT(*totals.largest_error, 2e-2);
      }
    }
    ASSERT_EQ(lines.size(), rank == 0 ? 1U : 0U);
    if (rank == 0) {
      EXPECT_NE(lines[0].find("MPI_Allreduce of 78.12KiB of f32 by int8, relative error 0.00"), std::string::npos)
          << lines[0];
    }
  });
}

// One rank of three cannot make a copy: no rank tries, and all pass.
TEST(HostReducer, OneRankWithoutMemoryForCopiesKeepsAllFromTrying) {
  const Configuration configuration = configuration_of(kAutomatic);
  run_jobs(3, configuration, [&](Job& job, int rank) {
    if (rank == 1) {
      job.rank.reducer.limit_copies(kCount);
    }
    const std::vector<float> wanted = exact_sum(3);
    for (int call = 0; call < 30; ++call) {
      std::vector<float> values = values_of(rank);
      EXPECT_EQ(job.reduce(values).decision.reason, Reason::untried);
      EXPECT_EQ(values, wanted);
    }
    EXPECT_EQ(job.trials, 0);
  });
}

// The library's own call fails on one rank, so no rank may wait for it in the compressed call.
TEST(HostReducer, ATrialThatFailsOnOneRankLetsAllPassFromThenOn) {
  for (const int failing : {0, 1}) {  // in the first trial, or in the second, which begins with the compressed call
    const Configuration configuration = configuration_of(kAutomatic);
    run_ranks(3, [&](const std::shared_ptr<Transport>& ours) {
      const bool mine = ours->rank() == 2;
      Rank rank(configuration, ours);
      std::vector<std::string> lines;
      for (int call = 0; call < 5; ++call) {
        std::vector<float> values = values_of(ours->rank());
        const ConstView view{values.data(), kCount, DType::f32};
        const HostReducer::Route route = rank.reducer.route(all_reduce_of(kCount, 3), "sum", {});
        // The other ranks may hear of it while they are still about to begin.
        const bool tries = call < failing || (call == failing && (mine || route.turn.trial));
        EXPECT_EQ(route.turn.trial, tries) << call;
        EXPECT_EQ(route.decision.reason, tries ? Reason::measuring : Reason::aside) << call;
        if (route.turn.trial) {
          rank.reducer.begin_trial(route, view, true);
          mine&& call == failing ? rank.reducer.drop_trial() : rank.reducer.end_trial(1e-3, view);
        }
        for (std::string& line : rank.reducer.take_lines()) {
          lines.push_back(std::move(line));
        }
      }
      EXPECT_EQ(lines.size(), ours->rank() == 0 ? 1U : 0U);
    });
  }
}

// Every rank gets its segment of the library's sum; in a reduce only the root has the sum.
TEST(HostReducer, ReduceScatterAndReduceAreTriedToo) {
  const Configuration configuration = configuration_of(kAutomatic);
  run_ranks(3, [&](const std::shared_ptr<Transport>& ours) {
    Rank rank(configuration, ours);
    const std::vector<std::uint64_t> counts{0, kCount - 7, 7};
    const std::uint64_t own = counts[static_cast<std::size_t>(ours->rank())];
    for (const Function function : {Function::mpi_reduce_scatter, Function::mpi_reduce}) {
      const bool scatters = function == Function::mpi_reduce_scatter;
      Call call = all_reduce_of(kCount, 3);
      call.function = function;
      for (int i = 0; i < 40; ++i) {
        const std::vector<float> values = values_of(ours->rank());
        const ConstView input{values.data(), kCount, DType::f32};
        const HostReducer::Route route = rank.reducer.route(call, "sum", {});
        if (route.turn.trial) {
          scatters ? rank.reducer.begin_trial(route, input, false, counts)
                   : rank.reducer.begin_trial(route, input, false);
          const std::uint64_t has = scatters ? own : ours->rank() == 0 ? kCount : 0;
          rank.reducer.end_trial(1e-12, {values.data(), has, DType::f32});
        }
        EXPECT_FALSE(route.decision.compress);
      }
      EXPECT_EQ(rank.reducer.route(call, "sum", {}).decision.reason, Reason::no_faster);
    }
  });
}

}  // namespace
}  // namespace gradwire::drop_in
