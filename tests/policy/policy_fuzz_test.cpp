// Replays the corpus of policy_fuzz.cpp and seeded mutations of it, as a plain test.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/support/mutations.hpp"

// NOLINTNEXTLINE(readability-redundant-declaration): fuzzers have no header
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace {

std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  for (const char* folder : {"/tests/policy/corpus", "/python-free-examples/policies"}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::string(GRADWIRE_SOURCE_DIR) + folder)) {
      std::ifstream stream(entry.path(), std::ios::binary);
      texts.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    }
  }
  return texts;
}

void run(const std::string& text) {
  SCOPED_TRACE(text);
  EXPECT_NO_THROW(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

TEST(PolicyFuzz, Corpus) {
  const auto texts = corpus();
  EXPECT_GE(texts.size(), 12U);
  for (const std::string& text : texts) {
    run(text);
  }
}

TEST(PolicyFuzz, Mutations) {
  const unsigned seed = 31;
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto texts = corpus();
  const std::vector<std::string> pieces{"[[rule]]\n",
                                        "match = \"*\"\n",
                                        "[",
                                        "]",
                                        "\"",
                                        "{",
                                        "}",
                                        "=",
                                        ".",
                                        "\n",
                                        std::string(1, '\0'),
                                        "\xff",
                                        "'''",
                                        "9223372036854775807",
                                        "-1",
                                        "1e999",
                                        "nan",
                                        "0x",
                                        "codec = \"int8\"\n",
                                        "true",
                                        "[a-",
                                        "*?[!a]"};
  for (int round = 0; round < 3000; ++round) {
    run(gradwire::test::mutated(texts[random() % texts.size()], texts, pieces, random));
  }
}

}  // namespace
