// Tests model files, the predicted cost of a step, and the advice.
#include "cli/codec_forecast.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "choice/codec_speed.hpp"
#include "cli/model_file.hpp"
#include "exchange/default_codecs.hpp"
#include "gradwire/error.hpp"
#include "policy/stage.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire::cli {
namespace {

using ::testing::HasSubstr;

ModelFile two_layers() {
  return ModelFile::parse(R"(version = 1
compute = "300ms"
backward = "50%"
[[layer]]
name = "first"
shape = [1024, 1024]
[[layer]]
name = "block.#"
count = 1_048_576
repeat = 3
)",
                          "model.toml");
}

std::vector<Candidate> free_codecs(int ranks) {
  std::vector<Candidate> candidates;
  for (const char* name : {"exact", "bf16", "int8", "int4", "topk(1%)+int8"}) {
    const CodecSpec codec = CodecSpec::parse(name);
    candidates.push_back({codec, {.bytes = exchange::bits_per_element(codec) / 8}});
    candidates.push_back({exchange::default_second_hop(codec, ranks),
                          {.bytes = exchange::bits_per_element(exchange::default_second_hop(codec, ranks)) / 8},
                          false});
  }
  return candidates;
}

exchange::Cluster cluster(int ranks, double rate) {
  return {.ranks = ranks, .ranks_per_node = 1, .inter = {0, rate}, .intra = {}};
}

TEST(ModelFile, ReadsLayersInOrder) {
  const ModelFile model = two_layers();
  EXPECT_DOUBLE_EQ(model.compute_seconds, 0.3);
  EXPECT_DOUBLE_EQ(model.backward, 0.5);
  ASSERT_EQ(model.layers.size(), 4U);
  EXPECT_EQ(model.layers[0].count, 1024U * 1024);
  EXPECT_EQ(model.layers[0].ndim, 2U);
  EXPECT_EQ(model.layers[3].name, "block.2");
}

TEST(ModelFile, NamesThePlaceOfAMistake) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      (void)ModelFile::parse(text, "m.toml");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "no error";
  };
  const std::string head = "compute = \"1ms\"\n";
  EXPECT_THAT(message("[[layer]]\nname = \"a\"\ncount = 1\n"), HasSubstr("compute is missing"));
  EXPECT_THAT(message(head), HasSubstr("there is no layer"));
  EXPECT_THAT(message(head + "[[layer]]\nname = \"a\"\n"), HasSubstr("m.toml:2:1: a layer needs shape"));
  EXPECT_THAT(message(head + "[[layer]]\ncount = 3\n"), HasSubstr("a layer needs a name"));
  EXPECT_THAT(message(head + "[[layer]]\nname = \"a\"\ncount = 0\n"), HasSubstr("m.toml:4:9: count is 0"));
  EXPECT_THAT(message(head + "[[layer]]\nname = \"a\"\nshape = [4294967296, 4294967296]\n"),
              HasSubstr("more elements"));
  EXPECT_THAT(message(head + "[[layer]]\nname = \"a\"\ncount = 1\nshape = [1]\n"), HasSubstr("not both"));
  EXPECT_THAT(message("compute = \"fast\"\n"), HasSubstr("m.toml:1:11:"));
  EXPECT_THAT(message(head + "[[layers]]\nname = \"a\"\n"), HasSubstr("layer"));
  EXPECT_THROW((void)ModelFile::load("/nonexistent/model.toml"), Error);
}

TEST(ModelFile, RefusesWhatIsNoListOfLayers) {
  const auto refused = [](const std::string& text) -> std::string {
    return test::error_of([&] { (void)ModelFile::parse(text, "m.toml"); }).what();
  };
  const std::string head = "compute = \"1ms\"\n";
  const std::string layer = "[[layer]]\nname = \"a\"\n";
  for (const char* shape : {"1024", "\"a\"", "{}", "[]", "true"}) {
    EXPECT_THAT(refused(head + layer + "shape = " + shape + "\n"), HasSubstr("m.toml:4:9: shape must be an array"));
  }
  EXPECT_THAT(refused("a" + std::string(400'000, '.') + "b = 1\n"), HasSubstr("m.toml:1:1: more than 120 dots"));
  std::string dotted = "a";
  for (int i = 0; i < 400'000; ++i) {
    dotted += ".a";
  }
  EXPECT_THAT(refused(dotted + " = 1\n"), HasSubstr("m.toml:1:1: more than 120 dots"));
  EXPECT_THAT(refused("[" + dotted + "]\n"), HasSubstr("m.toml:1:1: more than 120 dots"));
  std::string repeated = head;
  for (int i = 0; i < 11; ++i) {
    repeated += layer + "count = 1\nrepeat = 100000\n";
  }
  EXPECT_THAT(refused(repeated), HasSubstr("m.toml:42:1: with this [[layer]] the model has more than 1000000 layers"));
  EXPECT_THAT(refused(head + "[[layer]]\nname = \"" + std::string(1024, 'a') + "\"\ncount = 1\nrepeat = 100000\n"),
              HasSubstr("m.toml:2:1: with this [[layer]] the names have more than 64MiB"));
  EXPECT_THAT(refused(head + "[[layer]]\nname = \"" + std::string(1025, 'a') + "\"\ncount = 1\n"),
              HasSubstr("m.toml:3:8: this name has 1025 bytes"));
}

TEST(ModelFile, AFileWithoutAnEndIsNotReadToIt) {
  EXPECT_THAT(test::error_of([] { (void)ModelFile::load("/dev/zero"); }).what(),
              HasSubstr("model file /dev/zero: has more than 16MiB"));
}

// One rank communicates nothing; with free codecs only the wire counts, and fewer bits never take longer.
TEST(CodecForecast, FollowsTheBytes) {
  const ModelFile model = two_layers();
  for (const CodecForecast& one : forecast(model, cluster(1, 1e6), free_codecs(1))) {
    EXPECT_DOUBLE_EQ(one.step.seconds, 0.3) << one.codec.to_string();
    EXPECT_EQ(one.sent_bytes, 0);
  }
  const auto candidates = free_codecs(4);
  const auto slow = forecast(model, cluster(4, 1e7), candidates);
  ASSERT_EQ(slow.size(), 5U);
  EXPECT_NEAR(slow[0].communication, 1.5 * 4 * 4 * 1048576 / 1e7, 1e-9);
  EXPECT_NEAR(slow[0].sent_bytes, 1.5 * 4 * 4 * 1048576, 1e-6);
  for (std::size_t i = 1; i < slow.size(); ++i) {
    EXPECT_LT(slow[i].step.seconds, slow[i - 1].step.seconds) << slow[i].codec.to_string();
  }
  // The last bucket becomes ready at the very end, so some communication is always exposed.
  EXPECT_GT(forecast(model, cluster(4, 1e12), candidates)[0].step.exposed, 0);
  EXPECT_GT(forecast(model, cluster(4, 1e7), candidates, true)[0].memory, slow[0].memory) << "encrypted copies";
}

// The better the link, the less the advice drops; it never names a codec of lower quality than needed.
TEST(CodecForecast, AdviceIsMonotoneInBandwidth) {
  const ModelFile model = two_layers();
  const auto candidates = free_codecs(4);
  std::size_t last = candidates.size();
  for (double rate = 1e6; rate < 1e12; rate *= 1.5) {
    const std::size_t advised = advise(forecast(model, cluster(4, rate), candidates), 0.1);
    EXPECT_LE(advised, last) << rate;
    last = advised;
  }
  EXPECT_EQ(last, 0U);  // uncompressed
  EXPECT_EQ(advise(forecast(model, cluster(4, 1e6), candidates), 0.1), 4U);
}

// Inside nodes bytes cost next to nothing, so each node's link should carry them once.
TEST(CodecForecast, SlowLinksBetweenNodesSpeakForTiers) {
  const ModelFile model = two_layers();
  const auto candidates = free_codecs(8);
  exchange::Cluster nodes = cluster(8, 1e7);
  nodes.ranks_per_node = 4;
  nodes.intra = {0, 1e12};
  const auto slow = forecast(model, nodes, candidates);
  EXPECT_EQ(slow[2].algorithm, Algorithm::hierarchical);
  // int8 goes once into each node and once out of it, beside bf16 and int8 inside.
  const double elements = 4 * 1048576;
  const double int8 = exchange::bits_per_element(CodecSpec::parse("int8")) / 8;
  EXPECT_NEAR(slow[2].communication, elements * int8 / 1e7, 1e-3);
  EXPECT_NEAR(slow[2].sent_bytes, elements * (0.75 * (2 + int8) + int8 / 4), 1);
  EXPECT_EQ(slow[4].algorithm, Algorithm::two_shot);  // topk
  nodes.intra = {0, 1e6};                             // slow links inside nodes
  EXPECT_EQ(forecast(model, nodes, candidates)[2].algorithm, Algorithm::two_shot);
  EXPECT_EQ(forecast(model, cluster(8, 1e7), candidates)[2].algorithm, Algorithm::two_shot);
}

// Even if no communication is hidden, the forecast does not give up quality for a few percent.
TEST(CodecForecast, QualityIsWorthFivePercent) {
  const auto step = [](double seconds) {
    return CodecForecast{.codec = {}, .algorithm = {}, .step = {.seconds = seconds, .exposed = seconds - 1}};
  };
  EXPECT_EQ(advise(std::vector<CodecForecast>{step(9), step(4.1), step(4)}, 0.1), 1U);
  EXPECT_EQ(advise(std::vector<CodecForecast>{step(9), step(4.3), step(4)}, 0.1), 2U);
  EXPECT_EQ(advise(std::vector<CodecForecast>{step(9), step(1.2), step(1.05)}, 0.1), 2U);
}

TEST(CodecForecast, WhatIsNotAdvisableIsPassedOver) {
  const auto step = [](double seconds, bool advisable) {
    return CodecForecast{
        .codec = {}, .algorithm = {}, .step = {.seconds = seconds, .exposed = seconds - 1}, .advisable = advisable};
  };
  EXPECT_EQ(advise(std::vector{step(9, true), step(4, true), step(1, false)}, 0.1), 1U) << "no exposed communication";
  EXPECT_EQ(advise(std::vector{step(9, true), step(4, true), step(3, false)}, 0.1), 1U) << "the quickest";
}

TEST(ModelFile, TheExampleLoads) {
  const ModelFile model =
      ModelFile::load(std::filesystem::path(GRADWIRE_SOURCE_DIR) / "python-free-examples/models/gpt2_medium.toml");
  EXPECT_EQ(model.layers.size(), 73U);
}

// A codec slower than the link it saves is not advised.
TEST(CodecForecast, SlowCodecsLoseAgainstFastLinks) {
  const ModelFile model = two_layers();
  auto candidates = free_codecs(4);
  for (Candidate& candidate : candidates) {
    if (candidate.codec != CodecSpec::parse("exact")) {
      candidate.cost.encode_seconds = candidate.cost.decode_seconds = 4 / 1e9;
    }
  }
  EXPECT_EQ(advise(forecast(model, cluster(4, 1e9), candidates), 0), 0U);
  EXPECT_NE(advise(forecast(model, cluster(4, 1e7), candidates), 0), 0U);
}

TEST(CodecSpeed, SaysWhatACodecMakesOfAnElement) {
  for (const char* name : {"exact", "bf16", "int8", "int4", "topk(1%)+int8"}) {
    const CodecSpec codec = CodecSpec::parse(name);
    const exchange::CodecCost cost =
        choice::measure_codec(codec, policy::wants_feedback(codec), std::chrono::microseconds(200));
    EXPECT_NEAR(cost.bytes, exchange::bits_per_element(codec) / 8, 0.001)
        << name;  // a header of 32 bytes for 64 Ki elements
    EXPECT_GT(cost.encode_seconds, 0) << name;
    EXPECT_GT(cost.decode_seconds, 0) << name;
  }
}

}  // namespace
}  // namespace gradwire::cli
