// Runs the examples that need no LibTorch under mpirun.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/examples/run_ranks.hpp"

namespace gradwire::test {
namespace {

constexpr const char* kFinalLoss = R"(final loss ([0-9.e+-]+))";

TEST(HelloAllReduce, SumsWithinTheBoundOfInt8) {
  const Outcome outcome = run_ranks_of(3, "hello_all_reduce");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  // Both hops round to 1/254 of a block's largest value: the ranks' own (1 + 2 + 3 in total), then the sum's 6.
  const double error = number_in(outcome, R"(largest error ([0-9.]+))");
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 2 * 6 / 254.0 * 1.05);
  EXPECT_GT(number_in(outcome, R"(ratio ([0-9.]+))"), 3.9);
}

TEST(MpiSgd, LearnsAsWellAsTheJobItCameFrom) {
  const Outcome before = run_ranks_of(2, "existing_mpi_job 120");
  const Outcome after = run_ranks_of(2, "mpi_sgd 120");
  ASSERT_EQ(before.status, 0) << before.output;
  ASSERT_EQ(after.status, 0) << after.output;
  const double loss_before = number_in(before, kFinalLoss);
  const double loss_after = number_in(after, kFinalLoss);
  EXPECT_LT(loss_before, 0.7 * number_in(run_ranks_of(2, "existing_mpi_job 0"), kFinalLoss)) << "it must learn";
  EXPECT_NEAR(loss_after, loss_before, 0.01 * loss_before);
  EXPECT_GT(number_in(after, R"(compressed calls[^\n]*?([0-9]\.[0-9]+) +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +-)"), 3.5)
      << "nothing was compressed";
}

TEST(MpiSgd, WithExactGradientsIsTheSameJob) {
  const Outcome before = run_ranks_of(2, "existing_mpi_job 20");
  const Outcome after = run_ranks_of(2, "mpi_sgd 20 exact");
  // Sums of two values do not depend on the order.
  EXPECT_EQ(number_in(before, kFinalLoss), number_in(after, kFinalLoss));
}

TEST(HelloC, FindsTheMeanTarget) {
  const Outcome outcome = run_ranks_of(3, "hello_c");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_LT(number_in(outcome, R"(mean target ([0-9.]+))"), 0.02);
  EXPECT_GT(number_in(outcome, R"(ratio ([0-9.]+))"), 3.9);
}

TEST(HelloC, EndsWithTheReasonOfABadPolicy) {
  const Outcome outcome = run_ranks_of(2, "hello_c /no/such/policy.toml");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.output.find("invalid_argument: policy file /no/such/policy.toml: cannot be read"),
            std::string::npos)
      << outcome.output;
}

// Each row has the codec of the gradients and of the parameters, the guard, the final loss, and the ratios of both
// codecs.
TEST(Zero1Adam, LearnsWithEachCodecAndLessWithoutTheGuard) {
  const Outcome outcome = run_ranks_of(3, "zero1_adam 100");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto loss = [&](const std::string& row) { return number_in(outcome, row + R"( +([0-9.]+) )"); };
  const double exact = loss(R"(exact +exact +no)");
  EXPECT_LT(loss(R"(int4 +bf16 +no)"), 1.02 * exact);
  EXPECT_LT(loss(R"(int2 +bf16 +yes)"), 1.05 * exact);
  const std::string topk = R"(topk\(1%\)\+int8 +bf16)";
  EXPECT_LT(loss(topk + " +yes"), 1.25 * exact);
  EXPECT_LT(loss(topk + " +yes"), loss(topk + " +no")) << "the second moment was not frozen";
  EXPECT_GT(number_in(outcome, R"(int4 +bf16 +no +[0-9.]+ +([0-9.]+))"), 7);
  EXPECT_GT(number_in(outcome, topk + R"( +no +[0-9.]+ +([0-9.]+))"), 80);
}

// Mutation tried: in stage 2, the second bucket is not reduced.
TEST(Zero1Adam, LearnsTheSameInStageTwo) {
  const auto rows = [](const std::string& command) {
    const Outcome outcome = run_ranks_of(3, command);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return outcome.output.substr(outcome.output.find("gradients"));
  };
  EXPECT_EQ(rows("zero1_adam 20 2"), rows("zero1_adam 20 1"));
}

// The peak of a process is no time: it varies by a few MB.
TEST(Zero1Adam, NeedsTheMemoryOfItsFormula) {
  for (const char* how : {"1 int8 none", "2 int4 f32", "2 int4 bf16"}) {
    const Outcome outcome = run_ranks_of(2, "zero1_adam --memory " + std::string(how));
    ASSERT_EQ(outcome.status, 0) << outcome.output;
    const double formula = number_in(outcome, "formula ([0-9.]+)");
    EXPECT_NEAR(number_in(outcome, "measured ([0-9.]+)") / formula, 1, 0.06) << how;
  }
}

TEST(ExistingMpiJob, KnowsNothingOfGradwire) {
  std::ifstream file(std::string(GRADWIRE_SOURCE_DIR) + "/python-free-examples/existing_mpi_job/existing_mpi_job.cpp");
  ASSERT_TRUE(file);
  for (std::string line; std::getline(file, line);) {
    if (line.find("gradwire") != std::string::npos) {
      EXPECT_EQ(line.rfind("//", 0), 0U) << line;
    }
  }
}

}  // namespace
}  // namespace gradwire::test
