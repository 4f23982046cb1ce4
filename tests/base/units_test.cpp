// Tests quantities as people write them, in both directions.
#include "base/units.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "gradwire/error.hpp"

namespace gradwire {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

template <typename Parse>
void expect_refused(const Parse& parse, std::initializer_list<const char*> texts, const std::string& what) {
  for (const std::string text : texts) {
    try {
      (void)parse(text);
      ADD_FAILURE() << "\"" << text << "\" was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("bad " + what + " \"" + text + "\": write "));
    }
  }
}

TEST(Units, Bytes) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("4096"), 4096U);
  EXPECT_EQ(parse_bytes("1000B"), 1000U);
  EXPECT_EQ(parse_bytes("64KiB"), 65536U);
  EXPECT_EQ(parse_bytes(" 1.5 MiB "), 1572864U);
  EXPECT_EQ(parse_bytes("2GiB"), 2147483648U);
  EXPECT_EQ(parse_bytes("250kB"), 250000U);
  EXPECT_EQ(parse_bytes("3GB"), 3000000000U);
  EXPECT_EQ(parse_bytes("4503599627370497"), 4503599627370497U);
  expect_refused(&parse_bytes,
                 {"", " ", "KiB", "-1", "-0", "+1", "1kib", "1 MegaByte", "1e3", "0x10", "inf", "nan", "1KiB2",
                  "9223372036854775808", "8589934592GiB", "1,5MiB"},
                 "size");
  expect_refused(&parse_bytes, {std::string(400, '9').c_str()}, "size");
}

TEST(Units, Fraction) {
  EXPECT_DOUBLE_EQ(parse_fraction("1%"), 0.01);
  EXPECT_DOUBLE_EQ(parse_fraction("100 %"), 1);
  EXPECT_DOUBLE_EQ(parse_fraction("0.25"), 0.25);
  EXPECT_DOUBLE_EQ(parse_fraction("64/4096"), 0.015625);
  EXPECT_DOUBLE_EQ(parse_fraction("1"), 1);
  expect_refused(&parse_fraction, {"", "0", "0%", "101%", "1.5", "-1%", "1/0", "2/1", "1/2/3", "x", "1%%", "1/"},
                 "share");
}

TEST(Units, Rate) {
  EXPECT_DOUBLE_EQ(parse_rate("1Gbit/s"), 125e6);
  EXPECT_DOUBLE_EQ(parse_rate("100 Mbit/s"), 12.5e6);
  EXPECT_DOUBLE_EQ(parse_rate("10kbit/s"), 1250);
  EXPECT_DOUBLE_EQ(parse_rate("1MB/s"), 1e6);
  EXPECT_DOUBLE_EQ(parse_rate("2GiB/s"), 2147483648.0);
  expect_refused(&parse_rate, {"", "1", "0Gbit/s", "1Gbps", "1gbit/s", "-1MB/s", "Gbit/s"}, "rate");
  expect_refused(&parse_rate, {(std::string(308, '9') + "GB/s").c_str()}, "rate");
}

TEST(Units, Duration) {
  EXPECT_EQ(parse_duration("100ns"), 100ns);
  EXPECT_EQ(parse_duration("50us"), 50us);
  EXPECT_EQ(parse_duration("1.5ms"), 1500us);
  EXPECT_EQ(parse_duration("2 s"), 2s);
  EXPECT_EQ(parse_duration("5min"), 5min);
  EXPECT_EQ(parse_duration("0s"), 0s);
  expect_refused(&parse_duration, {"", "50", "-1s", "1h", "9999999999999s", "s"}, "duration");
}

TEST(Units, FormatsForMessages) {
  EXPECT_EQ(format_bytes(0), "0B");
  EXPECT_EQ(format_bytes(1023), "1023B");
  EXPECT_EQ(format_bytes(65536), "64KiB");
  EXPECT_EQ(format_bytes(1572864), "1.5MiB");
  EXPECT_EQ(format_bytes(1ULL << 40), "1024GiB");
  EXPECT_EQ(format_bytes(1ULL << 50), "1048576GiB");
  EXPECT_EQ(format_rate(125e6), "1Gbit/s");
  EXPECT_EQ(format_rate(1250), "10kbit/s");
  EXPECT_EQ(format_rate(1), "8bit/s");
  EXPECT_EQ(format_rate(125e12), "1000000Gbit/s");
  EXPECT_EQ(format_duration(50us), "50us");
  EXPECT_EQ(format_duration(1500us), "1.5ms");
  EXPECT_EQ(format_duration(7ns), "7ns");
  EXPECT_EQ(format_duration(24h), "86400s");
  EXPECT_EQ(format_number(0.1), "0.1");
  EXPECT_EQ(format_number(3.14159, 3), "3.14");
  EXPECT_EQ(std::stod(format_number(1e300, 60)), 1e300) << "there are more digits than fit";
}

TEST(Units, WhatIsFormattedReadsBack) {
  const unsigned seed = 3;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t bytes = random() >> (1 + random() % 62);
    const auto read = static_cast<double>(parse_bytes(format_bytes(bytes)));
    EXPECT_NEAR(read, static_cast<double>(bytes), 1e-3 * static_cast<double>(bytes)) << bytes << ", seed " << seed;
    const std::chrono::nanoseconds duration(random() >> (3 + random() % 60));
    EXPECT_NEAR(static_cast<double>(parse_duration(format_duration(duration)).count()),
                static_cast<double>(duration.count()), 1e-3 * static_cast<double>(duration.count()));
    const double value = static_cast<double>(random()) / 7;
    EXPECT_EQ(std::stod(format_number(value)), value);
    EXPECT_NEAR(parse_rate(format_rate(value)), value, 1e-3 * value);
  }
}

}  // namespace
}  // namespace gradwire
