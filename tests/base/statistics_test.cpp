// Tests merging statistics: which values add up, and which stay unmeasured.
#include "gradwire/statistics.hpp"

#include <gtest/gtest.h>

namespace gradwire {
namespace {

Statistics sample() {
  Statistics s;
  s.calls = 1;
  s.elements = 2;
  s.bytes_in = 3;
  s.bytes_sent = 4;
  s.bytes_uncompressed = 16;
  s.frames_sent = 5;
  s.nonfinite_frames = 6;
  s.encode_seconds = 0.5;
  s.decode_seconds = 0.25;
  s.wire_seconds = 0.125;
  s.total_seconds = 2;
  return s;
}

TEST(Statistics, AddsEveryField) {
  Statistics sum = sample();
  sum.add(sample());
  EXPECT_EQ(sum.calls, 2U);
  EXPECT_EQ(sum.elements, 4U);
  EXPECT_EQ(sum.bytes_in, 6U);
  EXPECT_EQ(sum.bytes_sent, 8U);
  EXPECT_EQ(sum.bytes_uncompressed, 32U);
  EXPECT_EQ(sum.frames_sent, 10U);
  EXPECT_EQ(sum.nonfinite_frames, 12U);
  EXPECT_EQ(sum.encode_seconds, 1.0);
  EXPECT_EQ(sum.decode_seconds, 0.5);
  EXPECT_EQ(sum.wire_seconds, 0.25);
  EXPECT_EQ(sum.total_seconds, 4.0);
  EXPECT_EQ(sum.ratio(), 4.0);
  EXPECT_EQ(sum.relative_error(), -1);
}

TEST(Statistics, RatioOfNothingIsOne) {
  EXPECT_EQ(Statistics{}.ratio(), 1.0);
  Statistics alone = sample();  // a world of one
  alone.bytes_sent = 0;
  EXPECT_EQ(alone.ratio(), 1.0);
}

TEST(Statistics, ErrorCoversWhatWasMeasured) {
  Statistics measured = sample();
  measured.squared_error = 4;
  measured.squared_norm = 16;
  EXPECT_EQ(measured.relative_error(), 0.5);
  Statistics sum = sample();
  sum.add(measured);
  EXPECT_EQ(sum.relative_error(), 0.5);
  sum.add(measured);
  EXPECT_EQ(sum.squared_error, 8);
  EXPECT_EQ(sum.squared_norm, 32);
  measured.add(sample());
  EXPECT_EQ(measured.squared_norm, 16);

  Statistics zeros;
  zeros.squared_error = zeros.squared_norm = 0;
  EXPECT_EQ(zeros.relative_error(), 0);
}

TEST(Statistics, TotalsOverGroups) {
  SessionStatistics session;
  session.groups.push_back(
      {.name = "default", .codec = "int8", .algorithm = "two_shot", .compressed = true, .totals = sample()});
  session.groups.push_back(
      {.name = "rule 1", .codec = "exact", .algorithm = "two_shot", .compressed = false, .totals = sample()});
  session.groups[1].totals.bytes_sent = 16;
  EXPECT_EQ(session.all().calls, 2U);
  EXPECT_EQ(session.all().ratio(), 32.0 / 20);
  EXPECT_EQ(session.compressed().calls, 1U);
  EXPECT_EQ(session.compressed().ratio(), 4.0);
}

}  // namespace
}  // namespace gradwire
