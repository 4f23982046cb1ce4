// tests/golden: good frames of every wire version decode to the values of the manifest, and those of the version that
// is written are written again byte by byte; bad ones are refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "golden_frames.hpp"
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

TEST(Golden, EveryCodecStillWritesTheSameBytes) {
  for (const GoldenFrame& golden : good_frames()) {
    EXPECT_EQ(read_file(folder_of(kWireVersion) / "good" / (golden.name + ".frame")), golden.frame) << golden.name;
  }
}

class GoldenVersions : public ::testing::TestWithParam<int> {
 protected:
  const fs::path folder_ = folder_of(GetParam());
};

TEST_P(GoldenVersions, EveryFrameStillDecodesToTheSameValues) {
  std::ifstream manifest(folder_ / "manifest.txt");
  std::size_t lines = 0;
  for (GoldenFrame golden : good_frames()) {
    golden.frame = read_file(folder_ / "good" / (golden.name + ".frame"));
    EXPECT_EQ(golden.frame.at(4), static_cast<std::byte>(GetParam())) << golden.name;
    std::string line;
    ASSERT_TRUE(std::getline(manifest, line)) << "no line for " << golden.name << "; run golden_frames tests/golden";
    EXPECT_EQ(manifest_line(golden), line);
    ++lines;
  }
  EXPECT_GE(lines, 48U);
}

TEST_P(GoldenVersions, BadFramesAreRefusedForTheirReason) {
  const GoldenFrame good = good_frames().front();
  const codec::Codec codec(good.spec, good.dtype);
  std::size_t files = 0;
  for (const auto& file : fs::directory_iterator(folder_ / "bad")) {
    const std::string name = file.path().stem().string();
    const auto frame = read_file(file.path());
    try {
      codec::FrameReader reader(codec, good.info, good.checksum, frame, 0);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_TRUE(name.starts_with(std::string(to_string(error.code())) + "-")) << name << ": " << error.what();
    }
    ++files;
  }
  EXPECT_GE(files, 21U);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenVersions, ::testing::Range(1, kWireVersion + 1));

TEST(Golden, BadFramesAreThere) {
  for (const BadFrame& bad : bad_frames(good_frames().front())) {
    EXPECT_EQ(read_file(folder_of(kWireVersion) / "bad" / (bad.name + ".frame")), bad.frame) << bad.name;
  }
}

}  // namespace
}  // namespace gradwire::test
