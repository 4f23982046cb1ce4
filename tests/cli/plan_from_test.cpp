// gradwire plan --from: a model out of what a job left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/gradient_tool.hpp"
#include "cli/report_json.hpp"
#include "gradwire/policy.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PlanFrom : public GradientTool {};

TEST_F(PlanFrom, TakesSizesFromGradientsWithTheWarmupOfItsCodec) {
  write_npy("g/step-0/first.npy", gaussian(1 << 20, 1));
  write_npy("g/step-0/second.npy", gaussian(1 << 20, 2));
  write_npy("g/step-1/first.npy", gaussian(1 << 20, 3));
  write_npy("g/step-1/second.npy", gaussian(1 << 20, 4));
  const std::string call = "plan --codec-rate 10GB/s --ranks 8 --link 100Mbit/s --from ";
  const Outcome outcome = gradwire(call + "g --compute 1ms");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("g: 2 layers, 2.097 million elements; a step computes 1 ms"));
  const Policy policy = Policy::parse(outcome.output.substr(outcome.output.find("version = 1\n")));
  EXPECT_EQ(policy.defaults.codec, CodecSpec::parse("int4"));
  ASSERT_EQ(policy.defaults.warmup.size(), 1U);
  EXPECT_EQ(policy.defaults.warmup[0].until_step, 100U);
  EXPECT_EQ(policy.defaults.warmup[0].codec, CodecSpec::parse("int8"));
  const Outcome int2 = gradwire(call + "g --compute 1ms --codecs int2");
  EXPECT_EQ(Policy::parse(int2.output.substr(int2.output.find("version = 1\n"))).defaults.warmup[0].until_step, 300U);
  EXPECT_THAT(gradwire(call + "g").output, HasSubstr("g: does not say how long a step computes on one rank; add it"));
  EXPECT_THAT(gradwire("plan --ranks 8").output, HasSubstr("there is no model; write --layers model.toml, or --from"));
  EXPECT_THAT(gradwire(call + "g --layers m.toml").output, HasSubstr("--layers and --from are both given"));
}

TEST_F(PlanFrom, TakesSizesFromAReport) {
  write("calls.json", kReport);
  const Outcome outcome = gradwire("plan --codec-rate 10GB/s --ranks 8 --compute 100ms --from calls.json");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("calls.json (3 steps, 2 sums in each): 2 layers, 16.78 million elements"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("with start and end")));
  std::string observed = kReport;
  observed.insert(1, R"("forecast": { "run_seconds": 10 }, )");
  write("observed.json", observed);
  EXPECT_THAT(
      gradwire("plan --codec-rate 10GB/s --ranks 8 --from observed.json").output,
      HasSubstr("Assumed:\n  computing: all of the job's time outside of the calls in its report, with start and end"));
  write("other.json", "{\"classes\": 3}");
  const Outcome refused = gradwire("plan --compute 1ms --from other.json");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("other.json: is no report of replaced calls"));
  write("lacking.json", R"({"library": 7, "classes": []})");
  EXPECT_THAT(gradwire("plan --compute 1ms --from lacking.json").output,
              HasSubstr("lacking.json: is no report of replaced calls"));
  write(
      "odd.json",
      R"({"world": 1, "library": "c10d", "classes": [null, 7, {"op": "sum", "dtype": "f32", "count": 1e300, "calls": 1},
                        {"op": "sum", "dtype": "f32", "count": "many", "calls": 1}]})");
  EXPECT_THAT(gradwire("plan --compute 1ms --from odd.json").output, HasSubstr("odd.json: has no sum of floats"));
}

TEST_F(PlanFrom, ManyClassesOfSimilarSizeAreOneStep) {
  nlohmann::json report{{"world", 4}, {"library", "Open MPI 4.1.4"}, {"classes", nlohmann::json::array()}};
  for (int i = 0; i < 150; ++i) {
    report["classes"].push_back({{"dtype", "f32"}, {"op", "sum"}, {"count", 100'000 + i}, {"calls", 12}});
  }
  report["classes"].push_back({{"dtype", "f32"}, {"op", "sum"}, {"count", 8}, {"calls", 4}});  // the loss, once a run
  write("many.json", report.dump());
  const Outcome outcome = gradwire("plan --codec-rate 10GB/s --ranks 8 --compute 100ms --from many.json");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("many.json (3 steps, 150 sums in each): 150 layers"));
}

}  // namespace
}  // namespace gradwire::test
