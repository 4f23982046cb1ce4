// Tests a session's statistics as text and as JSON.
#include "gradwire/statistics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace gradwire {
namespace {

using ::testing::HasSubstr;

SessionStatistics sample() {
  Statistics totals;
  totals.calls = 10;
  totals.elements = 1000;
  totals.bytes_in = 4096;
  totals.bytes_sent = 1024;
  totals.bytes_uncompressed = 4096;
  totals.frames_sent = 20;
  totals.encode_seconds = 0.25;
  SessionStatistics statistics;
  statistics.transport = "inproc, emulated 1Gbit/s";
  statistics.rank = 2;
  statistics.world_size = 4;
  statistics.steps = 5;
  statistics.exposed_seconds = 0.5;
  statistics.comparisons = 3;
  statistics.comparison_seconds = 0.125;
  statistics.groups.push_back({"default", "int8", "two_shot", true, 7, totals});
  totals.bytes_sent = 4096;
  statistics.groups.push_back({"rule 1 (*.b\"ias)", "exact", "one_shot", false, 3, totals});
  return statistics;
}

TEST(SessionStatistics, Json) {
  const auto json = nlohmann::json::parse(sample().to_json());
  EXPECT_EQ(json.at("transport"), "inproc, emulated 1Gbit/s");
  EXPECT_EQ(json.at("rank"), 2);
  EXPECT_EQ(json.at("world_size"), 4);
  EXPECT_EQ(json.at("steps"), 5);
  EXPECT_EQ(json.at("exposed_seconds"), 0.5);
  EXPECT_EQ(json.at("comparisons"), 3);
  EXPECT_EQ(json.at("comparison_seconds"), 0.125);
  EXPECT_EQ(json.at("ratio"), 8192.0 / 5120);
  EXPECT_EQ(json.at("ratio_compressed"), 4.0);
  EXPECT_EQ(json.at("all").at("calls"), 20);
  EXPECT_EQ(json.at("compressed").at("bytes_sent"), 1024);
  ASSERT_EQ(json.at("groups").size(), 2U);
  const auto& group = json.at("groups").at(1);
  EXPECT_EQ(group.at("name"), "rule 1 (*.b\"ias)");
  EXPECT_EQ(group.at("codec"), "exact");
  EXPECT_EQ(group.at("algorithm"), "one_shot");
  EXPECT_EQ(group.at("compressed"), false);
  EXPECT_EQ(group.at("tensors"), 3);
  const auto& totals = group.at("totals");
  for (const char* key : {"calls", "elements", "bytes_in", "bytes_sent", "bytes_uncompressed", "ratio", "frames_sent",
                          "nonfinite_frames", "encode_seconds", "decode_seconds", "wire_seconds", "total_seconds"}) {
    EXPECT_TRUE(totals.at(key).is_number()) << key;
  }
  for (const char* key : {"squared_error", "squared_norm", "relative_error"}) {
    EXPECT_TRUE(totals.at(key).is_null()) << key << " was not measured";
  }
}

TEST(SessionStatistics, JsonSurvivesBadNamesAndNumbers) {
  SessionStatistics statistics = sample();
  statistics.groups[0].name = "\xff\xfe";
  statistics.groups[0].totals.squared_error = std::numeric_limits<double>::infinity();
  statistics.groups[0].totals.squared_norm = 4;
  const auto json = nlohmann::json::parse(statistics.to_json());
  EXPECT_TRUE(json.at("groups").at(0).at("totals").at("squared_error").is_null());
  statistics.groups[0].totals.squared_error = 1;
  EXPECT_EQ(nlohmann::json::parse(statistics.to_json()).at("groups").at(0).at("totals").at("relative_error"), 0.5);
}

TEST(SessionStatistics, Text) {
  SessionStatistics statistics = sample();
  statistics.groups[0].totals.squared_error = 1;
  statistics.groups[0].totals.squared_norm = 4;
  const std::string text = statistics.to_text();
  EXPECT_THAT(text, HasSubstr("rank 2 of 4 over inproc, emulated 1Gbit/s, 5 steps, 500 ms waited in finish()\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("default +int8 +two_shot +7 +10 +4KiB +1KiB +4 +250 .* 0.5\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("rule 1 .* exact +one_shot +3 +10 +4KiB +4KiB +1 .* -\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("compressed calls +7 +10 +4KiB +1KiB +4 "));
  EXPECT_THAT(text, ::testing::ContainsRegex("all calls +10 +20 +8KiB +5KiB +1.6 "));
  EXPECT_THAT(text, HasSubstr("group             codec  algorithm  tensors "));
  EXPECT_THAT(text,
              HasSubstr("all codecs but exact and exact+zstd are lossy\nencode, decode, wire (waiting for messages)"));
}

}  // namespace
}  // namespace gradwire
