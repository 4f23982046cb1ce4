// gradwire ratio on small files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/gradient_tool.hpp"

namespace gradwire::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Ratio : public GradientTool {};

TEST_F(Ratio, ShowsEveryCodecOnOneGradient) {
  write_npy("w.npy", gaussian(100'000, 1));
  const Outcome outcome = gradwire("ratio w.npy --svg out.svg");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("1 tensor, 100000 elements"));
  EXPECT_THAT(outcome.output, HasSubstr("one step, which is repeated for the error of 8 steps"));
  EXPECT_THAT(outcome.output, ContainsRegex("exact +exact +1 +0% +0% +[0-9.]+ GB/s +[0-9.]+ GB/s"));
  EXPECT_THAT(outcome.output, ContainsRegex("int8 +lossy\\* +3\\.9[0-9] +0\\.[0-9]+% +"));
  EXPECT_THAT(outcome.output, ContainsRegex("topk\\(1%\\)\\+int8 +lossy +[0-9.]+ +9[0-9.]+% +"));
  EXPECT_THAT(read_text(folder_ / "out.svg"), HasSubstr(">int4</text>"));
}

TEST_F(Ratio, FeedbackMakesTheErrorOfAMeanSmaller) {
  for (int step = 0; step < 6; ++step) {
    write_npy("steps/step-" + std::to_string(step) + "/w.npy", gaussian(9000, static_cast<unsigned>(step)));
  }
  const auto report = rows("--codecs int4,exact steps");
  EXPECT_EQ(report.at("steps"), 6);
  EXPECT_EQ(report.at("repeated"), false);
  const auto& int4 = report.at("rows")[0];
  EXPECT_EQ(int4.at("lossy"), true);
  EXPECT_NEAR(int4.at("error").get<double>(), 0.1, 0.02) << "as docs/explanation/numerics.md has it";
  // The mean of six independent gradients is smaller by sqrt(6), and only the last residual is left of the errors.
  EXPECT_NEAR(int4.at("error_with_feedback").get<double>(), int4.at("error").get<double>() / std::sqrt(6.0), 0.015);
  EXPECT_NEAR(int4.at("ratio").get<double>(), 7.7, 0.2);
  EXPECT_EQ(report.at("rows")[1].at("error"), 0);
  EXPECT_EQ(rows("steps --codecs int4 --steps 2").at("steps"), 2);
  EXPECT_THAT(gradwire("ratio steps --steps 9").output, HasSubstr("--steps 9: the files hold 6 steps"));
}

// The size of a packed frame depends on the values, so it is measured, and differs between tensors.
TEST_F(Ratio, PackedFramesAreMeasured) {
  write_npy("steps/w.npy", gaussian(100'000, 1));
  write_npy("steps/zeros.npy", std::vector<float>(50'000));
  const auto row = rows("--codecs exact+zstd steps").at("rows")[0];
  EXPECT_EQ(row.at("lossy"), false);
  EXPECT_EQ(row.at("error"), 0);
  for (const auto& tensor : row.at("tensors")) {
    const auto ratio = tensor.at("ratio").get<double>();
    const bool zeros = tensor.at("name") == "zeros";
    EXPECT_GT(ratio, zeros ? 100 : 1.17);
    EXPECT_LT(ratio, zeros ? 1000 : 1.22);
  }
  EXPECT_NEAR(row.at("ratio").get<double>(), 1.5 * 1.195, 0.05);
}

// One tensor was recorded once, so all tensors repeat their first step, as the table says.
TEST_F(Ratio, TheTensorWithTheFewestStepsDecides) {
  for (int step = 0; step < 5; ++step) {
    write_npy("steps/step-" + std::to_string(step) + "/often.npy", gaussian(9000, static_cast<unsigned>(step)));
  }
  write_npy("steps/step-0/once.npy", gaussian(9000, 7));
  write_npy("first/step-0/often.npy", gaussian(9000, 0));
  write_npy("first/step-0/once.npy", gaussian(9000, 7));
  const auto report = rows("--codecs int4 steps");
  const auto of_first = rows("--codecs int4 first");
  EXPECT_EQ(report.at("repeated"), true);
  EXPECT_EQ(report.at("steps"), of_first.at("steps"));
  EXPECT_EQ(report.at("rows")[0].at("tensors"), of_first.at("rows")[0].at("tensors"));
  EXPECT_THAT(gradwire("ratio --codecs int4 steps").output, HasSubstr("one step, which is repeated"));
}

TEST_F(Ratio, StepsAreReadAtOnceUpToANumberOfOpenFiles) {
  for (int step = 0; step < 513; ++step) {
    write_npy("steps/step-" + std::to_string(step) + "/often.npy", {1, 2});
  }
  EXPECT_THAT(gradwire("ratio --codecs int4 steps").output, HasSubstr("513 recorded steps: at most 512 are read at"));
  EXPECT_EQ(rows("--codecs int4 steps --steps 3").at("steps"), 3);
  write_npy("steps/step-0/once.npy", {3, 4});
  EXPECT_EQ(rows("--codecs int4 steps --steps 600").at("steps"), 600) << "one step is read, and repeated";
}

TEST_F(Ratio, APolicyIsARowWithTheCodecOfEachTensor) {
  write("policy.toml", "[defaults]\ncodec = \"int8\"\n[[rule]]\nmatch = \"large\"\ncodec = \"int2\"\n");
  write_npy("large.npy", gaussian(50'000, 1));
  write_npy("other.npy", gaussian(50'000, 2));
  const auto report = rows("large.npy other.npy --codecs bf16 --policy policy.toml");
  ASSERT_EQ(report.at("rows").size(), 2U);
  const auto& row = report.at("rows")[1];
  EXPECT_EQ(row.at("codec"), "policy.toml");
  EXPECT_EQ(row.at("tensors")[0].at("codec"), "int2");
  EXPECT_EQ(row.at("tensors")[1].at("codec"), "int8");
  EXPECT_GT(row.at("tensors")[0].at("error").get<double>(), 10 * row.at("tensors")[1].at("error").get<double>());
}

TEST_F(Ratio, APolicyWithoutFeedbackIsMeasuredWithoutIt) {
  write("off.toml", "[defaults]\ncodec = \"int4\"\nerror_feedback = \"off\"\n");
  write("usual.toml", "[defaults]\ncodec = \"int4\"\n");
  write("int8.toml", "[defaults]\ncodec = \"int8\"\n");
  write_npy("w.npy", gaussian(50'000, 1));
  const auto policy_row = [&](const std::string& policy) {
    return rows("w.npy --steps 16 --codecs int4,int8 --policy " + policy + ".toml").at("rows");
  };
  const auto off = policy_row("off");
  const double with = off[0].at("error_with_feedback").get<double>();
  EXPECT_GT(off[2].at("error_with_feedback").get<double>(), 2 * with);
  EXPECT_EQ(off[2].at("error"), off[0].at("error"));
  EXPECT_EQ(off[2].at("tensors")[0].at("feedback"), false);
  EXPECT_EQ(policy_row("usual")[2].at("error_with_feedback"), off[0].at("error_with_feedback"));
  write("hop.toml", "[defaults]\ncodec = \"int8\"\nsecond_hop = \"int4\"\n");
  EXPECT_EQ(policy_row("hop")[2].at("tensors")[0].at("feedback"), true) << "its second hop asks for it";
  const auto int8 = policy_row("int8");
  EXPECT_GT(int8[2].at("error_with_feedback").get<double>(), 2 * int8[1].at("error_with_feedback").get<double>());
}

TEST_F(Ratio, OtherTypesAndFormatsAreRead) {
  const std::vector<double> doubles{1, -2, 3.5, 4};
  write_bytes(folder_ / "d.npy", npy(3, npy_dict("<f8", "(2, 2)"), bytes_of(doubles)));
  write_bytes(folder_ / "b.npy", npy(2, npy_dict("|V2", "(2,)"), bytes_of<std::uint16_t>({0x3f80, 0x4000})));
  write_bytes(folder_ / "g.safetensors", safetensors(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})",
                                                     bytes_of<std::uint16_t>({0x3c00, 0x4000})));
  write_bytes(folder_ / "raw.bin", bytes_of<float>({1, 2, 3}));
  const auto report = rows("d.npy b.npy g.safetensors raw.bin --dtype f32 --codecs exact,int8,bf16");
  EXPECT_EQ(report.at("rows")[0].at("tensors").size(), 4U);
  for (const auto& tensor : report.at("rows")[2].at("tensors")) {
    EXPECT_LT(tensor.at("error").get<double>(), 1e-9) << tensor << " is exact as bf16";
  }
}

TEST_F(Ratio, ValuesThatAreNotFiniteAreLeftOut) {
  std::vector<float> values = gaussian(9000, 3);
  values[5000] = NAN;
  values[1] = INFINITY;
  write_npy("w.npy", values);
  const Outcome outcome = gradwire("ratio w.npy --codecs int8");
  EXPECT_THAT(outcome.output, HasSubstr("16 values are NaN or Inf")) << "2 in each of 8 steps";
  EXPECT_THAT(outcome.output, Not(HasSubstr("nan")));
}

TEST_F(Ratio, RefusalsNameTheFileAndTheFix) {
  write_bytes(folder_ / "big.npy", npy(1, npy_dict(">f4", "(1,)"), "1234"));
  write_npy("a/w.npy", {1, 2});
  write_npy("b/w.npy", {1});
  write("raw", "12345678");
  const auto refused = [&](const std::string& arguments) {
    const Outcome outcome = gradwire("ratio " + arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    return outcome.output;
  };
  EXPECT_THAT(refused("big.npy"), HasSubstr("big.npy: header, byte 20: the elements are big endian"));
  EXPECT_THAT(refused("a/w.npy b/w.npy"),
              HasSubstr("b/w.npy: tensor \"w\" has 1 elements of f32, but 2 elements of f32"));
  EXPECT_THAT(refused("raw"), HasSubstr("--dtype f32"));
  EXPECT_THAT(refused("raw --dtype f8"), HasSubstr("unknown dtype \"f8\": write f32, f16, bf16 or f64"));
  EXPECT_THAT(refused("missing.npy"), HasSubstr("missing.npy"));
  EXPECT_THAT(refused("a/w.npy --codecs int9"), HasSubstr("int9"));
  EXPECT_THAT(refused("a/w.npy --steps 0"), HasSubstr("--steps 0: write a number from 1"));
  EXPECT_THAT(refused("a/w.npy --policy none.toml"), HasSubstr("none.toml"));
  EXPECT_THAT(refused("a/w.npy --svg no/folder.svg"), HasSubstr("no/folder.svg"));
}

}  // namespace
}  // namespace gradwire::test
