// Tests a rank's history: it is bounded, evenly spread, and valid JSON with any content.
#include "watch/history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "watch/json_text.hpp"

namespace gradwire::watch {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

RankTotals totals_of(std::uint64_t steps, const std::string& codec = "int8") {
  RankTotals totals;
  totals.world_size = 4;
  SessionStatistics session;
  session.transport = "mpi";
  session.steps = steps;
  SessionStatistics::Group group;
  group.name = "default";
  group.codec = codec;
  group.totals.bytes_sent = 10 * steps;
  session.groups.push_back(group);
  totals.sessions[1] = session;
  return totals;
}

json written(const History& history, const HistoryHead& head = {}) { return json::parse(history.to_json(head)); }

TEST(JsonText, WritesWhatReadsBack) {
  JsonText text;
  text.open('{').key("a\"b").number(1).key("b").open('[').number(0.1).number(-2).null().boolean(true).close(']');
  text.key("c").open('{').close('}').key("d").string("line\nquote\" back\\slash \x01 caf\xC3\xA9").close('}');
  const json read = json::parse(text.text());
  EXPECT_EQ(read.at("a\"b"), 1);
  EXPECT_EQ(read.at("b"), json::parse("[0.1,-2,null,true]"));
  EXPECT_EQ(read.at("d"), "line\nquote\" back\\slash \x01 caf\xC3\xA9");
}

// A job may have any bytes in its command line.
TEST(JsonText, BytesThatAreNoUtf8AreReplaced) {
  for (const std::string& bad : {std::string("\xFF"), std::string("\xC3"), std::string("\xE0\x80\x80"),
                                 std::string("\xED\xA0\x80"), std::string("\xF8"), std::string("\xC0\xAF")}) {
    JsonText text;
    text.string("a" + bad + "b");
    std::string read;
    ASSERT_NO_THROW(read = json::parse(text.text()).get<std::string>()) << bad.size();
    EXPECT_EQ(read.front(), 'a');
    EXPECT_EQ(read.back(), 'b');
    EXPECT_NE(read.find("\xEF\xBF\xBD"), std::string::npos);
  }
}

TEST(JsonText, NumbersAreShortAndExact) {
  JsonText text;
  text.open('[')
      .number(1e15)
      .number(0.1 + 0.2)
      .number(1e300)
      .number(std::numeric_limits<double>::infinity())
      .close(']');
  EXPECT_EQ(text.text(), "[1000000000000000,0.30000000000000004,1e+300,null]");
}

TEST(History, KeepsSamplesOfEqualDistanceHoweverLongTheJob) {
  History history(0.5);
  constexpr double kSeconds = 5000;
  std::uint64_t steps = 0;
  for (double time = 0; time < kSeconds; time += 0.5) {
    history.add(time, totals_of(++steps), {}, {});
    ASSERT_LE(history.samples(), kMostSamples);
  }
  EXPECT_GT(history.samples(), kMostSamples / 2 - 1);
  const json samples = written(history).at("samples");
  const json& times = samples.at("time");
  EXPECT_EQ(times.at(0), 0) << "the first stays";
  EXPECT_EQ(times.back(), kSeconds - 0.5) << "the latest value is kept";
  for (std::size_t i = 1; i + 1 < times.size(); ++i) {
    ASSERT_DOUBLE_EQ(times.at(i).get<double>() - times.at(i - 1).get<double>(), history.interval()) << i;
    ASSERT_DOUBLE_EQ(samples.at("steps").at(i).get<double>(), times.at(i).get<double>() / 0.5 + 1);
  }
  EXPECT_LT(history.to_json({}).size(), 200'000U);
}

TEST(History, TheLatestSampleIsWrittenWhetherDueOrNot) {
  History history(10);
  history.add(0, totals_of(1), {}, {});
  history.add(3, totals_of(2), {}, {});
  EXPECT_EQ(history.samples(), 1U);
  EXPECT_THAT(written(history).at("samples").at("steps"), ElementsAre(1, 2));
  history.add(4, totals_of(5), {}, {});
  EXPECT_THAT(written(history).at("samples").at("steps"), ElementsAre(1, 5));
}

TEST(History, AGroupThatComesLaterHasNothingBefore) {
  History history(1);
  history.add(0, totals_of(1), {}, {});
  RankTotals totals = totals_of(2, "auto: int4 3");
  totals.sessions[2] = totals.sessions[1];
  totals.sessions[1].groups[0].codec = "int8";
  history.add(1, totals, {}, {});
  const json read = written(history);
  ASSERT_EQ(read.at("groups").size(), 2U) << "auto counts as a codec";
  EXPECT_THAT(read.at("groups").at(0).at("bytes_sent"), ElementsAre(10, 20));
  EXPECT_THAT(read.at("groups").at(1).at("bytes_sent"), ElementsAre(0, 20));
  EXPECT_EQ(read.at("groups").at(1).at("codec"), "auto");
  EXPECT_TRUE(read.at("groups").at(1).at("in_use").at(0).is_null());
  EXPECT_EQ(read.at("codecs").at(read.at("groups").at(1).at("in_use").at(1).get<std::size_t>()), "auto: int4 3");
}

// Before anything is measured the codec is "auto (int8, int4)". Mutation tried: the whole text of a codec tells groups
// apart, which makes a second group.
TEST(History, AGroupOfAutoIsOneBeforeAndAfterTheFirstChoice) {
  History history(1);
  history.add(0, totals_of(1, "auto (int8, int4)"), {}, {});
  history.add(1, totals_of(2, "auto: int4 3"), {}, {});
  RankTotals none = totals_of(3);
  none.sessions[1].groups.clear();
  history.add(2, none, {}, {});
  const json read = written(history);
  ASSERT_EQ(read.at("groups").size(), 1U);
  EXPECT_THAT(read.at("codecs"), ElementsAre("auto (int8, int4)", "auto: int4 3"));
  EXPECT_THAT(read.at("groups").at(0).at("in_use"), ElementsAre(0, 1, nullptr));
}

TEST(History, AWarmUpHasItsOwnCodec) {
  History history(1);
  RankTotals totals = totals_of(1);
  totals.warm_ups[{"default", "int8"}] = "bf16";
  history.add(0, totals, {}, {});
  totals.warm_ups.clear();
  history.add(1, totals, {}, {});
  const json read = written(history);
  EXPECT_THAT(read.at("codecs"), ElementsAre("bf16 (warm-up)", "int8"));
  EXPECT_THAT(read.at("groups").at(0).at("in_use"), ElementsAre(0, 1));
}

TEST(History, HasMessagesBySize) {
  RankTotals totals = totals_of(1);
  totals.sent[0] = {.count = 2, .bytes = 100, .seconds = 0.5};
  totals.sent.back() = {.count = 1, .bytes = 1'000'000'000'000, .seconds = 9};
  History history(1);
  history.add(0, totals, {}, {});
  EXPECT_EQ(written(history).at("messages"), json::parse(R"([{"up_to":64,"count":2,"bytes":100,"seconds":0.5},
                            {"up_to":null,"count":1,"bytes":1000000000000,"seconds":9}])"));
}

TEST(History, ManyGroupsAreBounded) {
  RankTotals totals = totals_of(1);
  auto& groups = totals.sessions[1].groups;
  for (int i = 1; i < 40; ++i) {
    groups.push_back(groups.front());
    groups.back().name = "rule " + std::to_string(i);
  }
  History history(1);
  history.add(0, totals, {}, {});
  const json read = written(history).at("groups");
  ASSERT_EQ(read.size(), kMostHistoryGroups);
  double sum = 0;
  for (const json& group : read) {
    sum += group.at("bytes_sent").at(0).get<double>();
  }
  EXPECT_EQ(sum, 400) << "all further values are added up";
  EXPECT_EQ(read.back().at("name"), "other");
}

TEST(History, WhatADropInDidIsSplitByWhetherItCompressed) {
  const std::vector<ReplacedCalls> calls{{"MPI_Allreduce", "", 3, 300, 100, 0.5, 450},
                                         {"MPI_Bcast", "not a sum", 2, 20, 20, 0.1, 20}};
  History history(1);
  const RankTotals totals;
  history.add(0, totals, {}, calls);
  const json read = written(history);
  const json& samples = read.at("samples");
  EXPECT_EQ(samples.at("compressed_bytes_dense").at(0), 450);
  EXPECT_EQ(samples.at("passed_calls").at(0), 2);
  EXPECT_EQ(samples.at("passed_bytes_in").at(0), 20);
  EXPECT_EQ(read.at("replaced").at(1).at("reason"), "not a sum");
}

TEST(History, SaysWhatTheJobWas) {
  History history(1);
  history.add(0, totals_of(7), {}, {});
  const json read = written(history, {.part = "mpi",
                                      .rank = 3,
                                      .host = "node \"a\"",
                                      .command = {"./job", "--name", "<x>"},
                                      .environment = {{"GRADWIRE_CODEC", "int8"}},
                                      .started = 5,
                                      .written = 6,
                                      .ended = true});
  EXPECT_EQ(read.at("format"), "gradwire history");
  EXPECT_EQ(read.at("part"), "mpi");
  EXPECT_EQ(read.at("rank"), 3);
  EXPECT_EQ(read.at("world"), 4);
  EXPECT_EQ(read.at("transport"), "mpi");
  EXPECT_EQ(read.at("host"), "node \"a\"");
  EXPECT_THAT(read.at("command"), ElementsAre("./job", "--name", "<x>"));
  EXPECT_EQ(read.at("environment").at("GRADWIRE_CODEC"), "int8");
  EXPECT_EQ(read.at("ended"), true);
}

}  // namespace
}  // namespace gradwire::watch
