// Tests the errors of sums: their bounds, and small values that are lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/drop_in/reducer_harness.hpp"

namespace gradwire::drop_in {
namespace {

TEST(HostReducer, ABoundIsHeldFromTheFirstCallOn) {
  // int8 has an error of about 0.002 here, sign a large one.
  struct Row {
    const char* policy;
    bool passes;
  };
  for (const Row& row : {Row{"[defaults]\nmax_error = 0.01\n", false}, Row{"[defaults]\nmax_error = 1e-5\n", true},
                         Row{"[defaults]\ncodec = \"auto\"\nallow = [\"int8\"]\nmax_error = 1e-5\n", true}}) {
    const Configuration configuration = configuration_of(row.policy);
    run_jobs(3, configuration, [&](Job& job, int rank) {
      const std::vector<float> wanted = exact_sum(3);
      std::vector<std::string> lines;
      for (int call = 0; call < 200; ++call) {
        std::vector<float> values = values_of(rank);
        const HostReducer::Route route = job.reduce(values, 10);
        EXPECT_EQ(route.turn.trial, call == 0) << call;
        EXPECT_EQ(values == wanted, call == 0 || row.passes) << call;
        if (row.passes && call > 0) {
          EXPECT_EQ(route.decision.reason, Reason::inaccurate);
        }
        for (std::string& line : job.rank.reducer.take_lines()) {
          lines.push_back(std::move(line));
        }
      }
      ASSERT_EQ(lines.size(), rank == 0 ? 1U : 0U);
      if (rank == 0) {
        EXPECT_EQ(lines[0].find("above max_error 1e-05") != std::string::npos, row.passes) << lines[0];
      }
    });
  }
}

// The values cancel: each rank's own error is small beside its values, but as large as the sum. Only the ranks' exact
// sum shows that. Mutation tried: a rank's own values are compared.
TEST(HostReducer, ABoundIsHeldLaterWhereSumsCancel) {
  const Configuration configuration = configuration_of("[defaults]\nmax_error = \"5%\"\n");
  for (const bool scatters : {false, true}) {
    run_jobs(2, configuration, [&](Job& job, int rank) {
      const auto call_of = [&](bool cancels) {
        std::vector<float> values = values_of(0);
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = cancels && rank == 1 ? -values[i] + 1e-6F * static_cast<float>(i % 7) : values[i];
        }
        if (!scatters) {
          return job.reduce(values, 10);
        }
        Call call = all_reduce_of(kCount, 2);
        call.function = Function::mpi_reduce_scatter;
        const std::vector<std::uint64_t> counts{kCount / 2, kCount / 2};
        HostReducer::Route route = job.rank.reducer.route(call, "sum", {});
        const ConstView input{values.data(), kCount, DType::f32};
        std::vector<float> result(kCount / 2);
        if (route.turn.trial) {
          job.rank.reducer.begin_trial(route, input, false, counts);
          for (std::size_t i = 0; i < result.size(); ++i) {
            result[i] = 2 * values[i + static_cast<std::size_t>(rank) * result.size()];
          }
          job.rank.reducer.end_trial(10, {result.data(), result.size(), DType::f32});
        } else if (route.decision.compress) {
          job.rank.reducer.reduce_scatter(route, input, {result.data(), result.size(), DType::f32}, counts);
        }
        return route;
      };
      EXPECT_TRUE(call_of(false).turn.trial);
      EXPECT_TRUE(call_of(false).decision.compress);
      int compressed = 0;
      while (call_of(true).decision.compress && compressed < 100) {
        ++compressed;
      }
      EXPECT_LE(compressed, 64);
      EXPECT_GE(compressed, 60);
      EXPECT_EQ(call_of(false).decision.reason, Reason::inaccurate);
    });
  }
}

// Small values beside an outlier of each block decode to 0, and would do so for ever.
TEST(HostReducer, SmallValuesThatAreLostAreToldOnceWithTheRuleThatMendsIt) {
  for (const char* policy : {"", "[defaults]\nerror_feedback = \"on\"\n"}) {
    const bool mended = *policy != '\0';
    const Configuration configuration = configuration_of(policy);
    run_jobs(2, configuration, [&](Job& job, int rank) {
      std::vector<std::string> lines;
      std::vector<float> values(1 << 16);
      for (int call = 0; call < 100; ++call) {
        std::fill(values.begin(), values.end(), 1e-3F);
        for (std::size_t i = 0; i < values.size(); i += 256) {
          values[i] = 1000;
        }
        job.reduce(values);
        for (std::string& line : job.rank.reducer.take_lines()) {
          lines.push_back(std::move(line));
        }
      }
      ASSERT_EQ(lines.size(), rank == 0 ? (mended ? 1U : 2U) : 0U);
      if (rank == 0 && !mended) {
        EXPECT_NE(lines[1].find("99.6% of the values"), std::string::npos) << lines[1];
        EXPECT_NE(lines[1].find("min_bytes = 262144, max_bytes = 524287, codec = \"int8\", error_feedback = \"on\""),
                  std::string::npos)
            << lines[1];
      }
    });
  }
}

}  // namespace
}  // namespace gradwire::drop_in
