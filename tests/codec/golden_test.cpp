// tests/golden: good frames decode to the values of the manifest and are written again byte by byte; bad ones are
// refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "golden_frames.hpp"

namespace gradwire::test {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(GRADWIRE_SOURCE_DIR) / "tests" / "golden";

std::vector<std::byte> read_file(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  EXPECT_TRUE(stream) << file << " is missing; run golden_frames tests/golden";
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(Golden, EveryCodecStillWritesTheSameBytes) {
  for (const GoldenFrame& golden : good_frames()) {
    EXPECT_EQ(read_file(kFolder / "good" / (golden.name + ".frame")), golden.frame) << golden.name;
  }
}

TEST(Golden, EveryFrameStillDecodesToTheSameValues) {
  std::ifstream manifest(kFolder / "manifest.txt");
  std::size_t lines = 0;
  for (GoldenFrame golden : good_frames()) {
    golden.frame = read_file(kFolder / "good" / (golden.name + ".frame"));
    std::string line;
    ASSERT_TRUE(std::getline(manifest, line)) << "no line for " << golden.name << "; run golden_frames tests/golden";
    EXPECT_EQ(manifest_line(golden), line);
    ++lines;
  }
  EXPECT_GE(lines, 48U);
}

TEST(Golden, BadFramesAreRefusedForTheirReason) {
  const GoldenFrame good = good_frames().front();
  const codec::Codec codec(good.spec, good.dtype);
  std::size_t files = 0;
  for (const auto& file : fs::directory_iterator(kFolder / "bad")) {
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
  EXPECT_EQ(files, bad_frames(good).size());
}

}  // namespace
}  // namespace gradwire::test
