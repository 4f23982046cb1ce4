// Tests the line that OpenTelemetry reads.
#include "watch/otlp.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <regex>
#include <set>

#include "gradwire/version.hpp"
#include "tests/watch/otlp_reading.hpp"

namespace gradwire::watch {
namespace {

using ::testing::Each;

std::vector<Family> some_families() {
  Histogram sizes = Histogram::of_bytes();
  sizes.add(100);
  sizes.add(1 << 20);
  sizes.add(1e12);
  return {{"gradwire_steps_total", "Steps.", MetricType::counter, {{{}, 3}}},
          {"gradwire_empty", "Left out.", MetricType::gauge},
          {"gradwire_odd",
           "A \\ and a\nline.",
           MetricType::gauge,
           {{{{"group", "rule \"1\"\\\n"}}, 0.1},
            {{{"group", "2"}}, std::numeric_limits<double>::quiet_NaN()},
            {{{"group", "3"}}, -std::numeric_limits<double>::infinity()}}},
          {"gradwire_message_bytes", "Sizes.", MetricType::histogram, {}, {{{{"direction", "sent"}}, sizes}}}};
}

constexpr std::int64_t kNow = 1'700'000'000'123'456'789;

OtlpResource some_resource() {
  return {.part = "mpi", .rank = 3, .host = "node\x1b[7", .process = 4711, .started = kNow - 1'000'000'007};
}

TEST(Otlp, SaysWhatTheTextSays) {
  const std::string text = to_otlp(some_families(), some_resource(), kNow);
  EXPECT_EQ(text.find('\n'), text.size() - 1) << "one line";
  const OtlpLine line = read_otlp(text);
  std::vector<double> sums;
  EXPECT_EQ(without_sums(to_text(line.families, {})), without_sums(to_text(some_families(), {}), &sums));
  EXPECT_EQ(line.sums, sums);
  EXPECT_EQ(line.units, (std::vector<std::string>{"{step}", "", "By"}));
}

TEST(Otlp, SaysWhoseItIsAndWhen) {
  const OtlpLine line = read_otlp(to_otlp(some_families(), some_resource(), kNow));
  EXPECT_EQ(line.resource, (Labels{{"service.name", "gradwire"},
                                   {"service.version", std::string(kVersion)},
                                   {"service.instance.id", "mpi-rank-3"},
                                   {"host.name", "node\x1b[7"},
                                   {"process.pid", "4711"},
                                   {"gradwire.part", "mpi"},
                                   {"gradwire.rank", "3"}}));
  OtlpResource named = some_resource();
  named.job = "resnet";
  const std::string of_job = to_otlp({}, named, 0);
  EXPECT_THAT(of_job, ::testing::HasSubstr("{\"key\":\"gradwire.job\",\"value\":{\"stringValue\":\"resnet\"}}"));
  EXPECT_THAT(of_job, ::testing::HasSubstr("\"resnet-" + named.part + "-rank-3\""));
  EXPECT_THAT(line.times, Each("1700000000123456789")) << "the time has nanoseconds, which a JSON number cannot hold";
  EXPECT_THAT(line.starts, Each("1699999999123456782"));
  EXPECT_EQ(line.starts.size(), 2U) << "a gauge has no start";
}

// Metrics that count nothing, or are yes or no, have no unit.
TEST(Otlp, EveryMetricOfTheDocumentHasItsUnit) {
  const std::set<std::string> without{"gradwire_info", "gradwire_job_ended", "gradwire_note", "gradwire_rank_slow"};
  std::ifstream document(std::string(GRADWIRE_SOURCE_DIR) + "/docs/reference/metrics.md");
  const std::regex row(R"(^\| `(gradwire_\w+)` \|.*)");
  int found = 0;
  for (std::string text; std::getline(document, text);) {
    std::smatch match;
    if (std::regex_match(text, match, row)) {
      ++found;
      EXPECT_EQ(otlp_unit(match[1].str()).empty(), without.contains(match[1])) << match[1];
    }
  }
  EXPECT_GT(found, 40);
  EXPECT_EQ(otlp_unit("gradwire_link_bytes_per_second"), "By/s");
  EXPECT_EQ(otlp_unit("gradwire_bucket_byte_seconds_total"), "By.s");
  EXPECT_EQ(otlp_unit("gradwire_observer_cpu_seconds_total"), "s");
  EXPECT_EQ(otlp_name("gradwire_bytes_sent_total"), "gradwire_bytes_sent");
}

}  // namespace
}  // namespace gradwire::watch
