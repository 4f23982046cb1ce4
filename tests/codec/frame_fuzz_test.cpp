// Replays the corpus of frame_fuzz.cpp and seeded mutations of it, as a plain test.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

// NOLINTNEXTLINE(readability-redundant-declaration): fuzzers have no header
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace {

std::vector<std::string> corpus() {
  std::vector<std::string> frames;
  for (const char* folder :
       {"version1/good", "version1/bad", "version2/good", "version2/bad", "version3/good", "version3/bad", "fuzz"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(GRADWIRE_SOURCE_DIR) / "tests/golden" / folder)) {
      std::ifstream stream(entry.path(), std::ios::binary);
      frames.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    }
  }
  return frames;
}

void run(const std::string& frame) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(frame.data()), frame.size());
}

TEST(FrameFuzz, Corpus) {
  const auto frames = corpus();
  EXPECT_GE(frames.size(), 140U);
  for (const std::string& frame : frames) {
    run(frame);
  }
}

TEST(FrameFuzz, Mutations) {
  const unsigned seed = 91;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto frames = corpus();
  for (int round = 0; round < 8000; ++round) {
    std::string frame = frames[random() % frames.size()];
    for (std::size_t edits = 1 + random() % 4; edits > 0 && !frame.empty(); --edits) {
      const std::size_t at =
          random() % 2 == 0 ? random() % frame.size() : random() % std::min<std::size_t>(32, frame.size());
      switch (random() % 5) {
        case 0: frame[at] = static_cast<char>(frame[at] ^ (1 << random() % 8)); break;
        case 1: frame[at] = static_cast<char>(random()); break;
        case 2: frame.resize(random() % (frame.size() + 64)); break;
        case 3: frame.erase(at, 1 + random() % 16); break;
        default: frame.insert(at, 1 + random() % 16, static_cast<char>(random())); break;
      }
    }
    run(frame);
  }
}

}  // namespace
