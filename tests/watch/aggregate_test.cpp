// Tests how events and counts are added up by rank.
#include "watch/aggregate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace gradwire::watch {
namespace {

using observe::Event;
using observe::EventKind;
using observe::Source;

constexpr observe::TimeScale kScale{.ticks = 0, .nanoseconds = 0, .nanoseconds_per_tick = 0.5};

// Returns a duration of this many seconds in that scale.
std::uint32_t lasting(double seconds) {
  return static_cast<std::uint32_t>(seconds * 1e9 / 0.5 / static_cast<double>(observe::kTicksOfDuration));
}

// Makes an aggregate of the given sources, numbered 1, 2, ...
Aggregate over(const std::vector<Source>& sources) {
  return Aggregate([sources](observe::SourceId id) {
    return id >= 1 && id <= sources.size() ? std::optional(sources[id - 1U]) : std::nullopt;
  });
}

Source shared(int rank) { return {.rank = rank, .world_size = 4, .shares_process = true}; }

double value_of(const std::vector<Family>& families, const std::string& name, const Labels& labels = {}) {
  for (const Family& family : families) {
    for (const Sample& sample : family.samples) {
      if (family.name == name && sample.labels == labels) {
        return sample.value;
      }
    }
  }
  ADD_FAILURE() << "no " << name;
  return -1;
}

SessionStatistics::Group group(const std::string& name, const std::string& codec, std::uint64_t sent) {
  SessionStatistics::Group group;
  group.name = name;
  group.codec = codec;
  group.totals.calls = 1;
  group.totals.bytes_sent = sent;
  group.totals.bytes_inter = sent;
  group.totals.bytes_uncompressed = 4 * sent;
  return group;
}

TEST(Aggregate, RanksThatAreThreadsAreApartAndThoseOfAProcessOne) {
  Aggregate threads = over({shared(0), shared(3)});
  const std::vector<Event> events{{.source = 1, .kind = EventKind::error}, {.source = 2, .kind = EventKind::error}};
  threads.add(events, kScale);
  EXPECT_EQ(threads.ranks().size(), 2U);
  EXPECT_EQ(threads.ranks().at(3).events[EventKind::error], 1U);

  // A process of rank 5 also has a place in a smaller world; the source made first gives its rank.
  Aggregate process = over({{.rank = 5, .world_size = 8}, {.rank = 1, .world_size = 2}});
  process.add(std::vector<Event>{{.source = 2, .kind = EventKind::error}, {.source = 0, .kind = EventKind::error}},
              kScale);
  process.add(std::vector<Event>{{.source = 1, .kind = EventKind::error}}, kScale);
  ASSERT_EQ(process.ranks().size(), 1U);
  EXPECT_EQ(process.ranks().at(5).events[EventKind::error], 3U);
  EXPECT_EQ(process.ranks().at(5).world_size, 8);

  Aggregate told = over({{.rank = 1, .world_size = 2}});
  told.set_home(7);
  told.add(std::vector<Event>{{.source = 1, .kind = EventKind::error}}, kScale);
  EXPECT_TRUE(told.ranks().contains(7));
}

// An example is a table that a rank makes for itself alone.
TEST(Aggregate, AWorldOfOneIsOfTheRankOfItsProcess) {
  Source alone = shared(0);
  alone.world_size = 1;
  const std::vector<Event> events{{.source = 2, .kind = EventKind::error}, {.source = 1, .kind = EventKind::error}};
  Aggregate rank_1 = over({{.rank = 1, .world_size = 2}, alone});
  rank_1.add(events, kScale);
  ASSERT_EQ(rank_1.ranks().size(), 1U);
  EXPECT_EQ(rank_1.ranks().at(1).events[EventKind::error], 2U);

  Aggregate nobody_else = over({alone, alone});
  nobody_else.add(events, kScale);
  ASSERT_EQ(nobody_else.ranks().size(), 1U);
  EXPECT_EQ(nobody_else.ranks().at(0).events[EventKind::error], 2U);
}

// A drop-in that only observes has no source that says how many ranks there are.
TEST(Aggregate, TheProcessMayKnowTheSizeOfItsWorld) {
  Aggregate aggregate = over({});
  aggregate.add(
      observe::Round{}, [] { return std::optional(1); }, 3);
  aggregate.add(
      observe::Round{}, [] { return std::optional(1); }, 3);
  EXPECT_EQ(aggregate.ranks().at(1).world_size, 3);
}

// The replaced calls of the drop-in have made these.
TEST(Aggregate, ADropInsCommunicatorsAddNoCalls) {
  for (const auto kind : {Source::Kind::communicator, Source::Kind::session}) {
    Aggregate aggregate = over({{.kind = kind, .rank = 1, .world_size = 2}});
    aggregate.leave_out_calls_of_communicators();
    observe::Snapshot snapshot{.source = 1};
    snapshot.statistics.groups.push_back(group("all_reduce", "int8", 100));
    aggregate.add(snapshot);
    snapshot.last = true;
    aggregate.add(snapshot);
    EXPECT_EQ(aggregate.ranks().at(1).sum().groups.size(), kind == Source::Kind::session ? 1U : 0U);
  }
}

TEST(Aggregate, StagesAndStepsTakeSeconds) {
  Aggregate aggregate = over({shared(0)});
  const auto ticks = [](double seconds) { return static_cast<std::uint64_t>(seconds * 2e9); };
  aggregate.add(
      std::vector<Event>{
          {.bytes = 1000, .source = 1, .duration = lasting(0.002), .kind = EventKind::encode},
          {.bytes = 300, .source = 1, .duration = lasting(3), .kind = EventKind::send},
          {.begin = ticks(1), .source = 1, .duration = lasting(0.5), .step = 0, .kind = EventKind::step_end},
          {.begin = ticks(3), .source = 1, .duration = lasting(0.25), .step = 1, .kind = EventKind::step_end}},
      kScale);
  const RankTotals& rank = aggregate.ranks().at(0);
  EXPECT_EQ(rank.seconds[EventKind::encode].count(), 1U);
  EXPECT_NEAR(rank.seconds[EventKind::encode].sum(), 0.002, 1e-6);
  EXPECT_EQ(rank.seconds[EventKind::send].count(), 0U) << "the time until a send is seen as done is no stage's time";
  EXPECT_EQ(rank.bytes[EventKind::send].sum(), 300);
  EXPECT_EQ(rank.steps.count(), 1U);
  EXPECT_NEAR(rank.steps.sum(), 1.75, 1e-6);
  EXPECT_NEAR(rank.seconds[EventKind::step_end].sum(), 0.75, 1e-6);
}

// The messages are in flight from 1 to 3 s, from 2 to 3 s inside of that, from 2 to 5 s past its end, and from 9 to 10
// s apart.
TEST(Aggregate, MessagesOnTheirWayAtOneTimeCountOnce) {
  Aggregate aggregate = over({shared(0)});
  const auto send = [](double from, double to) {
    return Event{.begin = static_cast<std::uint64_t>(from * 2e9),
                 .bytes = 10,
                 .source = 1,
                 .duration = lasting(to - from),
                 .kind = EventKind::send};
  };
  aggregate.add(std::vector<Event>{send(1, 3), send(2, 3), send(2, 5)}, kScale);
  aggregate.add(std::vector<Event>{send(9, 10)}, kScale);
  EXPECT_NEAR(aggregate.ranks().at(0).sending_seconds, 5, 1e-6);
  EXPECT_EQ(aggregate.ranks().at(0).sum_of_bytes[EventKind::send], 40U);
}

TEST(Aggregate, CountsOfSessionsThatGoOnAndThatEndedAddUp) {
  Aggregate aggregate = over({shared(0), shared(0)});
  SessionStatistics statistics;
  statistics.steps = 2;
  statistics.groups = {group("default", "int8", 100)};
  aggregate.add({.source = 1, .statistics = statistics});
  statistics.steps = 5;
  statistics.groups = {group("default", "int8", 300), group("small", "bf16", 7)};
  aggregate.add({.source = 1, .statistics = statistics, .last = true});
  statistics.steps = 1;
  statistics.groups = {group("default", "int8", 50), group("default", "int4", 1)};
  aggregate.add({.source = 2, .statistics = statistics});
  aggregate.add({.source = 2, .statistics = statistics});
  const std::vector<Family> made = families(aggregate.ranks().at(0), {}, {});
  EXPECT_EQ(value_of(made, "gradwire_steps_total"), 6);
  const auto sent = [&](const char* name, const char* codec) {
    return value_of(made, "gradwire_bytes_sent_total", {{"group", name}, {"codec", codec}, {"tier", "inter"}});
  };
  EXPECT_EQ(sent("default", "int8"), 350);
  EXPECT_EQ(sent("default", "int4"), 1);
  EXPECT_EQ(sent("small", "bf16"), 7);
  EXPECT_EQ(value_of(made, "gradwire_compression_ratio", {{"group", "default"}, {"codec", "int8"}}), 4);
}

TEST(Aggregate, WhatAutoChoosesNowIsNoLabelOfACounter) {
  Aggregate aggregate = over({shared(0)});
  SessionStatistics statistics;
  statistics.groups = {group("default", "auto: topk(1%)+int8 3, dense 1", 8)};
  statistics.switches.resize(2);
  for (CodecSwitch& change : statistics.switches) {
    change.cause = "guard";
  }
  aggregate.add({.source = 1, .statistics = statistics});
  const std::vector<Family> made = families(aggregate.ranks().at(0), {}, {});
  EXPECT_EQ(value_of(made, "gradwire_calls_total", {{"group", "default"}, {"codec", "auto"}}), 1);
  EXPECT_EQ(value_of(made, "gradwire_codec_buckets", {{"group", "default"}, {"codec", "topk(1%)+int8"}}), 3);
  EXPECT_EQ(value_of(made, "gradwire_codec_buckets", {{"group", "default"}, {"codec", "dense"}}), 1);
  EXPECT_EQ(value_of(made, "gradwire_codec_switches_total", {{"cause", "guard"}}), 2);
  EXPECT_EQ(value_of(made, "gradwire_codec_switches_total", {{"cause", "faster"}}), 0);
}

TEST(Aggregate, WhatSourcesKnowIsTheLatest) {
  Aggregate aggregate = over({shared(0), shared(0), shared(0)});
  observe::Knowledge known;
  known.link.emplace().inter = {.latency_seconds = 1, .bytes_per_second = 2};
  known.health = {{.group = "default", .codec = "auto: int8 3", .nmse = 0.5, .residual_ratio = 7}};
  known.memory = {.residual_bytes = 100, .frame_bytes = 10};
  aggregate.add({.source = 1, .knowledge = known});
  aggregate.add({.source = 2, .knowledge = known});
  known.link->inter.bytes_per_second = 3;
  known.health[0].nmse = 0.25;
  known.memory->residual_bytes = 200;
  aggregate.add({.source = 1, .knowledge = known});
  aggregate.add({.source = 3, .knowledge = {.rows = observe::Knowledge::Rows{9, 4, 6, 2}}});
  const auto made = [&] { return families(aggregate.ranks().at(0), {.ring_bytes = 5}, {}); };
  EXPECT_EQ(value_of(made(), "gradwire_link_bytes_per_second", {{"tier", "inter"}}), 3);
  EXPECT_EQ(value_of(made(), "gradwire_link_latency_seconds", {{"tier", "inter"}}), 1);
  EXPECT_EQ(value_of(made(), "gradwire_nmse_ratio", {{"group", "default"}, {"codec", "auto"}}), 0.25);
  EXPECT_EQ(value_of(made(), "gradwire_residual_norm_ratio", {{"group", "default"}, {"codec", "auto"}}), 7);
  EXPECT_EQ(value_of(made(), "gradwire_memory_bytes", {{"kind", "residuals"}}), 300);
  EXPECT_EQ(value_of(made(), "gradwire_memory_bytes", {{"kind", "frames"}}), 20);
  EXPECT_EQ(value_of(made(), "gradwire_memory_bytes", {{"kind", "rings"}}), 5);
  const std::vector<Family> empty = families(RankTotals(), {}, {});
  const auto memory = std::find_if(empty.begin(), empty.end(),
                                   [](const Family& family) { return family.name == "gradwire_memory_bytes"; });
  ASSERT_NE(memory, empty.end());
  EXPECT_EQ(memory->samples.size(), 1U) << "without a session only the rings are known";
  EXPECT_EQ(value_of(made(), "gradwire_table_rows_total", {{"from", "owner"}}), 4);
  EXPECT_EQ(value_of(made(), "gradwire_table_rows_total", {{"from", "here"}}), 5);
  EXPECT_EQ(value_of(made(), "gradwire_table_row_age_clocks_total"), 6);
  EXPECT_EQ(value_of(made(), "gradwire_table_oldest_row_clocks"), 2);
  aggregate.add({.source = 2, .knowledge = known, .last = true});
  EXPECT_EQ(value_of(made(), "gradwire_memory_bytes", {{"kind", "residuals"}}), 200) << "removed ones take no memory";
  EXPECT_EQ(value_of(made(), "gradwire_nmse_ratio", {{"group", "default"}, {"codec", "auto"}}), 0.25)
      << "it is there for a look after the end";

  const std::vector<Event> buckets{
      {.bytes = 1000, .source = 1, .duration = lasting(0.5), .kind = EventKind::bucket_end},
      {.bytes = 10, .source = 1, .duration = lasting(2), .kind = EventKind::bucket_end}};
  aggregate.add(buckets, kScale);
  EXPECT_NEAR(value_of(made(), "gradwire_bucket_byte_seconds_total"), 520, 0.01);
}

TEST(Aggregate, GroupsAreBounded) {
  Aggregate aggregate = over({shared(0)});
  SessionStatistics statistics;
  for (int i = 0; i < 1000; ++i) {
    statistics.groups.push_back(group("rule " + std::to_string(i), "int8", 1));
  }
  aggregate.add({.source = 1, .statistics = statistics, .last = true});
  const std::vector<Family> made = families(aggregate.ranks().at(0), {}, {});
  double calls = 0;
  for (const Family& family : made) {
    EXPECT_LE(family.samples.size(), 3 * 65U) << family.name;
    for (const Sample& sample : family.samples) {
      calls += family.name == "gradwire_calls_total" ? sample.value : 0;
    }
  }
  EXPECT_EQ(calls, 1000) << "no call is lost";
}

TEST(Families, CallsOfADropIn) {
  Aggregate aggregate = over({});
  aggregate.touch(2);
  const std::vector<ReplacedCalls> calls{{"MPI_Allreduce", "", 3, 300, 100, 0.5},
                                         {"MPI_Allreduce", "too small", 9, 9, 9}};
  const std::vector<Family> made = families(aggregate.ranks().at(2), {}, calls);
  EXPECT_EQ(value_of(made, "gradwire_replaced_calls_total",
                     {{"function", "MPI_Allreduce"}, {"outcome", "compressed"}, {"reason", ""}}),
            3);
  EXPECT_EQ(value_of(made, "gradwire_replaced_calls_total",
                     {{"function", "MPI_Allreduce"}, {"outcome", "passed"}, {"reason", "too small"}}),
            9);
}

TEST(Families, ASlowRankHasItsCause) {
  Aggregate aggregate = over({shared(0)});
  aggregate.add({.source = 1,
                 .slow = observe::SlowState{observe::SlowCause::late_compute, {.share = 0.25, .last_arrivals = 0.75}}});
  std::vector<Family> made = families(aggregate.ranks().at(0), {}, {});
  EXPECT_EQ(value_of(made, "gradwire_rank_slow", {{"cause", "late_compute"}}), 1);
  EXPECT_EQ(value_of(made, "gradwire_rank_slow", {{"cause", "paused"}}), 0);
  EXPECT_EQ(value_of(made, "gradwire_rank_last_arrivals_ratio", {}), 0.75);
  EXPECT_EQ(value_of(made, "gradwire_rank_waited_for_ratio", {}), 0.25);
  aggregate.add({.source = 1, .slow = observe::SlowState{}});
  made = families(aggregate.ranks().at(0), {}, {});
  EXPECT_EQ(value_of(made, "gradwire_rank_slow", {{"cause", "late_compute"}}), 0);
}

// Returns all metrics that a rank may have.
std::map<std::string, MetricType> all_types() {
  Aggregate aggregate = over({shared(0)});
  SessionStatistics statistics;
  statistics.device_memory.emplace();
  aggregate.add({.source = 1, .statistics = statistics, .slow = observe::SlowState{}});
  std::map<std::string, MetricType> types;
  for (const Family& family : families(aggregate.ranks().at(0), {}, {})) {
    types.emplace(family.name, family.type);
  }
  return types;
}

// The document has a section for each type.
TEST(Families, AreThoseOfTheDocuments) {
  const std::map<std::string, MetricType> sections{
      {"## Counters", MetricType::counter}, {"## Histograms", MetricType::histogram}, {"## Gauges", MetricType::gauge}};
  std::ifstream file(std::string(GRADWIRE_SOURCE_DIR) + "/docs/reference/metrics.md");
  std::map<std::string, MetricType> listed;
  const std::regex row(R"(^\| `(gradwire_[a-z_]+)` \|.*)");
  MetricType type = MetricType::counter;
  for (std::string line; std::getline(file, line);) {
    if (const auto section = sections.find(line); section != sections.end()) {
      type = section->second;
    }
    std::smatch match;
    if (std::regex_match(line, match, row)) {
      EXPECT_TRUE(listed.emplace(match[1], type).second) << match[1] << " twice";
    }
  }
  EXPECT_EQ(listed, all_types());
}

// Tests names against Prometheus' conventions.
TEST(Families, AreNamedAsTheyShould) {
  Aggregate aggregate = over({shared(0)});
  aggregate.touch(0);
  std::set<std::string> names;
  for (const Family& family : families(aggregate.ranks().at(0), {}, {})) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " twice";
    EXPECT_TRUE(family.name.starts_with("gradwire_")) << family.name;
    EXPECT_EQ(family.name.ends_with("_total"), family.type == MetricType::counter) << family.name;
    EXPECT_TRUE(family.help.ends_with(".")) << family.name;
    if (family.type == MetricType::histogram) {
      EXPECT_TRUE(family.name.ends_with("_seconds") || family.name.ends_with("_bytes")) << family.name;
    }
  }
}

}  // namespace
}  // namespace gradwire::watch
