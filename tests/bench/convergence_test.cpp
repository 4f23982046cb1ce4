// Tests bench_convergence --quick: fields, refusals, and its components. Its results are not asserted here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/convergence/data.hpp"
#include "bench/convergence/model.hpp"
#include "bench/convergence/statistics.hpp"
#include "tests/bench/read_json.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using convergence::Mlp;
using convergence::Samples;
using ::testing::HasSubstr;

const std::string kProgram = GRADWIRE_BENCH_CONVERGENCE;

TEST(BenchConvergence, WritesARowForEachPolicyWithAndWithoutFeedback) {
  const ScratchFolder folder;
  const Outcome outcome =
      run_program(kProgram + " --quick --json " + folder.file("out.json") + " --svg " + folder.file("out.svg"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("emulated 1Gbit/s"));
  const auto report = read_json(folder.file("out.json"));
  EXPECT_EQ(report.at("schema"), "gradwire.bench_convergence.1");
  EXPECT_TRUE(report.at("machine").contains("cpu"));
  EXPECT_TRUE(report.at("link").at("emulated").get<bool>());
  std::set<std::string> judged, with, without;
  for (const auto& row : report.at("rows")) {
    const auto policy = row.at("policy").get<std::string>();
    EXPECT_EQ(row.at("seeds").size(), 2U);
    EXPECT_FALSE(row.at("curve").empty());
    EXPECT_GT(row.at("bits_per_element").get<double>(), 0);
    EXPECT_GT(row.at("emulated_step_ms").get<double>(), row.at("emulated_exposed_ms").get<double>());
    if (policy == "dense") {
      EXPECT_DOUBLE_EQ(row.at("loss_ratio").at("mean").get<double>(), 1);  // the same run, to the bit
      EXPECT_DOUBLE_EQ(row.at("loss_ratio").at("standard_error").get<double>(), 0);
    }
    if (row.at("part") == "mlp" && row.at("second_hop") == "auto") {
      (row.at("keeps_residuals").get<bool>() ? with : without).insert(policy);
    }
    if (!row.at("bound").is_null()) {
      judged.insert(policy);
    }
    if (row.at("part") == "accuracy") {
      EXPECT_GT(row.at("accuracy_percent").at("mean").get<double>(), 5);
      EXPECT_TRUE(policy == "dense" || row.at("ratio").get<double>() >= 7.5) << policy;
    }
  }
  const std::set<std::string> lossy{"bf16", "fp16", "fp8", "int8", "int4", "int2", "sign", "topk10_int8", "topk1_int8"};
  EXPECT_EQ(with, lossy);
  without.erase("dense");
  EXPECT_EQ(without, lossy);
  EXPECT_EQ(judged, (std::set<std::string>{"int8", "int4", "int2", "sign", "topk10_int8", "topk1_int8"}));
  EXPECT_THAT(read_text(folder.file("out.svg")), HasSubstr("</svg>"));
}

TEST(BenchConvergence, TakesPoliciesOfYours) {
  const ScratchFolder folder;
  std::ofstream(folder.file("mine.toml")) << "[defaults]\ncodec = \"int4\"\nsmall = \"off\"\n";
  const Outcome outcome = run_program(kProgram + " --quick --parts mlp --seeds 1 --policies " +
                                      folder.file("mine.toml") + " --json " + folder.file("out.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto rows = read_json(folder.file("out.json")).at("rows");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("policy"), "mine");
  EXPECT_TRUE(rows[0].at("bound").is_null());
  EXPECT_TRUE(rows[0].at("loss_ratio").at("standard_error").is_null());  // a single seed gives no error
}

TEST(BenchConvergence, BadInputIsNamed) {
  const ScratchFolder folder;
  const Outcome none = run_program(kProgram + " --quick --policies " + folder.file(""));
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, HasSubstr("no .toml file"));
  std::ofstream(folder.file("bad.toml")) << "[defaults]\ncodec = \"int9\"\n";
  const Outcome bad = run_program(kProgram + " --quick --policies " + folder.file("bad.toml"));
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.output, HasSubstr("bad.toml:2:"));
  EXPECT_EQ(run_program(kProgram + " --parts other").status, 2);
  EXPECT_EQ(run_program(kProgram + " --seeds 6").status, 2);
  EXPECT_EQ(run_program(kProgram + " --help").status, 0);
}

TEST(Mlp, GradientIsThatOfTheLoss) {
  const Samples samples = convergence::draw({.inputs = 5, .classes = 3}, 7, 1, 0);
  Mlp model({5, 6, 3}, 1);
  const std::vector<std::uint32_t> batch{0, 1, 2, 3, 4, 5, 6};  // two blocks, the second not full
  model.backward(samples, batch);
  const std::vector<float> gradients = model.gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    constexpr float kStep = 1e-2F;
    float& parameter = model.parameters()[i];
    const float before = parameter;
    parameter = before + kStep;
    const double above = model.score(samples).mean_loss();
    parameter = before - kStep;
    const double below = model.score(samples).mean_loss();
    parameter = before;
    EXPECT_NEAR(gradients[i], (above - below) / (2 * static_cast<double>(kStep)), 2e-4) << i;
  }
}

TEST(Shards, HoldEverySampleOnceSortedByLabel) {
  const Samples samples = convergence::draw({.inputs = 2, .classes = 10}, 103, 1, 0);
  const auto shards = convergence::shard_by_label(samples, 8);
  ASSERT_EQ(shards.size(), 8U);
  std::size_t count = 0;
  int last = 0;
  double sum = 0;
  for (const Samples& shard : shards) {
    count += shard.count();
    EXPECT_LE(std::set<int>(shard.labels.begin(), shard.labels.end()).size(), 3U);
    for (std::size_t i = 0; i < shard.count(); ++i) {
      EXPECT_GE(shard.labels[i], last);
      last = shard.labels[i];
      sum += static_cast<double>(shard.row(i)[0]);
    }
  }
  EXPECT_EQ(count, 103U);
  double wanted = 0;
  for (std::size_t i = 0; i < samples.count(); ++i) {
    wanted += static_cast<double>(samples.row(i)[0]);
  }
  EXPECT_NEAR(sum, wanted, 1e-9);
}

TEST(Summary, MeanErrorAndBound) {
  const std::vector<double> values{1.0, 1.1, 1.2, 1.3};
  const convergence::Summary summary = convergence::summarize(values);
  EXPECT_DOUBLE_EQ(summary.mean, 1.15);
  EXPECT_NEAR(summary.standard_error, 0.0645497, 1e-6);
  EXPECT_TRUE(convergence::meets(summary, 1.09));
  EXPECT_FALSE(convergence::meets(summary, 1.08));
  const convergence::Summary diverged = convergence::summarize(std::vector<double>{1.0, std::nan("")});
  EXPECT_TRUE(std::isnan(diverged.mean));
  EXPECT_FALSE(convergence::meets(diverged, 1e9));
  EXPECT_TRUE(convergence::meets(convergence::summarize(std::vector<double>{1.0}), 1.0));
}

}  // namespace
}  // namespace gradwire::test
