// Tests the text that Prometheus reads.
#include "watch/metric.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gradwire::watch {
namespace {

using ::testing::HasSubstr;

TEST(Histogram, BoundsArePowersOfFour) {
  Histogram seconds = Histogram::of_seconds();
  EXPECT_DOUBLE_EQ(seconds.bound(0), 1e-6);
  EXPECT_DOUBLE_EQ(seconds.bound(1), 4e-6);
  EXPECT_NEAR(seconds.bound(Histogram::kBounds - 1), 16.8, 0.1);
  EXPECT_EQ(Histogram::of_bytes().bound(Histogram::kBounds - 1), 1U << 30);
  for (const double value : {0.0, 1e-6, 1.1e-6, 4e-6, 100.0}) {
    seconds.add(value);
  }
  EXPECT_EQ(seconds.counts()[0], 2U) << "a bound includes the values below it";
  EXPECT_EQ(seconds.counts()[1], 2U);
  EXPECT_EQ(seconds.counts()[Histogram::kBounds], 1U);
  EXPECT_EQ(seconds.count(), 5U);
  EXPECT_DOUBLE_EQ(seconds.sum(), 100 + 6.1e-6);
  for (std::size_t i = 0; i < Histogram::kBounds; ++i) {
    for (const Histogram& empty : {Histogram::of_seconds(), Histogram::of_bytes()}) {
      Histogram at = empty;
      at.add(empty.bound(i));
      EXPECT_EQ(at.counts()[i], 1U) << i;
      Histogram above = empty;
      above.add(std::nextafter(empty.bound(i), 2 * empty.bound(i)));
      EXPECT_EQ(above.counts()[i + 1], 1U) << i;
      Histogram between = empty;
      between.add(2 * empty.bound(i));
      EXPECT_EQ(between.counts()[i + 1], 1U) << i;
    }
  }
  Histogram twice = seconds;
  twice.add(seconds);
  EXPECT_EQ(twice.count(), 10U);
}

TEST(Text, IsWhatPrometheusReads) {
  Histogram sizes = Histogram::of_bytes();
  sizes.add(100);
  sizes.add(1 << 20);
  const std::vector<Family> families{
      {"gradwire_steps_total", "Steps.", MetricType::counter, {{{}, 3}}},
      {"gradwire_empty", "Left out.", MetricType::gauge},
      {"gradwire_odd", "A \\ and a\nline.", MetricType::gauge, {{{{"group", "rule \"1\"\\\n"}}, 0.5}}},
      {"gradwire_message_bytes", "Sizes.", MetricType::histogram, {}, {{{{"direction", "sent"}}, sizes}}}};
  EXPECT_EQ(to_text(families, {{"rank", "2"}}),
            "# HELP gradwire_steps_total Steps.\n"
            "# TYPE gradwire_steps_total counter\n"
            "gradwire_steps_total{rank=\"2\"} 3\n"
            "# HELP gradwire_odd A \\\\ and a\\nline.\n"
            "# TYPE gradwire_odd gauge\n"
            "gradwire_odd{rank=\"2\",group=\"rule \\\"1\\\"\\\\\\n\"} 0.5\n"
            "# HELP gradwire_message_bytes Sizes.\n"
            "# TYPE gradwire_message_bytes histogram\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"64\"} 0\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"256\"} 1\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"1024\"} 1\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"4096\"} 1\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"16384\"} 1\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"65536\"} 1\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"262144\"} 1\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"1048576\"} 2\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"4194304\"} 2\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"16777216\"} 2\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"67108864\"} 2\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"268435456\"} 2\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"1073741824\"} 2\n"
            "gradwire_message_bytes_bucket{rank=\"2\",direction=\"sent\",le=\"+Inf\"} 2\n"
            "gradwire_message_bytes_sum{rank=\"2\",direction=\"sent\"} 1048676\n"
            "gradwire_message_bytes_count{rank=\"2\",direction=\"sent\"} 2\n"
            "# EOF\n");
}

TEST(Text, NumbersThatAreNone) {
  const double infinite = std::numeric_limits<double>::infinity();
  const std::string text = to_text(
      std::vector<Family>{
          {"x", "X.", MetricType::gauge, {{{{"n", "1"}}, infinite}, {{{"n", "2"}}, -infinite}, {{}, std::nan("")}}}},
      {});
  EXPECT_THAT(text, HasSubstr("x{n=\"1\"} +Inf\n"));
  EXPECT_THAT(text, HasSubstr("x{n=\"2\"} -Inf\n"));
  EXPECT_THAT(text, HasSubstr("x NaN\n"));
}

}  // namespace
}  // namespace gradwire::watch
