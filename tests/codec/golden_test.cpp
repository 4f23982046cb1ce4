// Tests tests/golden: good frames of every wire version decode to the values of the manifest, and those of the version
// that this build writes are written again byte by byte; bad frames are refused, each for its reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "golden_frames.hpp"
#include "gradwire/error.hpp"
#include "gradwire/version.hpp"

namespace gradwire::test {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(int version) {
  return fs::path(GRADWIRE_SOURCE_DIR) / "tests" / "golden" / ("version" + std::to_string(version));
}

std::vector<std::byte> read_file(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  EXPECT_TRUE(stream) << file << " is missing; run golden_frames tests/golden";
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Returns the frames of good_frames(), with the bytes of the folder.
std::vector<GoldenFrame> read_good(int version) {
  std::vector<GoldenFrame> good = good_frames(version);
  for (GoldenFrame& golden : good) {
    golden.frame = read_file(folder_of(version) / "good" / (golden.name + ".frame"));
  }
  return good;
}

std::string read_text(const fs::path& file) {
  const auto bytes = read_file(file);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(Golden, EveryCodecStillWritesTheSameBytes) {
  for (const GoldenFrame& golden : good_frames(kWireVersion)) {
    if (!golden.packed) {
      EXPECT_EQ(read_file(folder_of(kWireVersion) / "good" / (golden.name + ".frame")), golden.frame) << golden.name;
    }
  }
}

// Epoch, terms, hop and a stated length change only the header.
TEST(Golden, WhatTheHeaderSaysChangesNoValue) {
  const auto good = read_good(kWireVersion);
  const auto same = [&](const std::string& name, const std::string& plain) {
    EXPECT_EQ(decoded_crc(find_golden(good, name)), decoded_crc(find_golden(good, plain))) << name;
  };
  same("epoch200-int8-f32", "int8-f32");
  same("mean-exact-bf16", "exact-bf16");
  same("mean-feedback-weights-int4-f32", "int4-f32");
  same("node-int4-f32", "int4-f32");
  same("length-fp8-f32", "fp8-f32");
  same("length-int4-bf16", "int4-bf16");
  same("exact+zstd-f32", "exact-f32");
  same("exact+zstd-f16", "exact-f16");
  same("exact+zstd-bf16", "exact-bf16");
  same("exact+zstd-f64", "exact-f64");
}

class GoldenVersions : public ::testing::TestWithParam<int> {
 protected:
  const fs::path folder_ = folder_of(GetParam());
  const std::vector<GoldenFrame> good_ = read_good(GetParam());
};

TEST_P(GoldenVersions, EveryFrameStillDecodesToTheSameValues) {
  std::string manifest;
  for (const GoldenFrame& golden : good_) {
    EXPECT_EQ(golden.frame.at(4), static_cast<std::byte>(GetParam())) << golden.name;
    manifest += manifest_line(golden) + "\n";
  }
  EXPECT_EQ(read_text(folder_ / "manifest.txt"), manifest);
  EXPECT_EQ(files_in(folder_ / "good"), good_.size());
  EXPECT_GE(good_.size(), GetParam() == 1 ? 48U : 66U);
}

TEST_P(GoldenVersions, BadFramesAreRefusedForTheirReason) {
  const auto bad_frames_there = bad_frames(GetParam(), good_);
  for (const BadFrame& bad : bad_frames_there) {
    const GoldenFrame& base = find_golden(good_, bad.base);
    const auto frame = read_file(folder_ / "bad" / (bad.name + ".frame"));
    EXPECT_EQ(frame, bad.frame) << bad.name;
    for (const bool add : {false, true}) {
      std::vector<double> values(base.info.count);
      try {
        read_as(base, frame, add, reinterpret_cast<std::byte*>(values.data()));
        ADD_FAILURE() << bad.name << " was accepted";
      } catch (const Error& error) {
        EXPECT_TRUE(bad.name.starts_with(std::string(to_string(error.code())) + "-"))
            << bad.name << ": " << error.what();
        EXPECT_THAT(error.what(), ::testing::HasSubstr(bad.reason)) << bad.name;
      }
    }
  }
  EXPECT_EQ(files_in(folder_ / "bad"), bad_frames_there.size());
  EXPECT_GE(bad_frames_there.size(), GetParam() == 1 ? 25U : 46U);
}

// bad.txt is for readers that are not ours.
TEST_P(GoldenVersions, EveryBadFrameNamesTheGoodOneThatIsExpected) {
  std::string lines;
  for (const BadFrame& bad : bad_frames(GetParam(), good_)) {
    lines += manifest_line(bad) + "\n";
  }
  EXPECT_EQ(read_text(folder_ / "bad.txt"), lines);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenVersions, ::testing::Range(1, kWireVersion + 1));

}  // namespace
}  // namespace gradwire::test
