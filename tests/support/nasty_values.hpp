// Damages files but keeps their form: JSON stays JSON, and its values become hostile.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace gradwire::test {

/// Returns GRADWIRE_TEST_SEED, or `usual`, and prints it, so that a run can be repeated.
inline unsigned seed_of(const char* test, unsigned usual) {
  const char* given = std::getenv("GRADWIRE_TEST_SEED");  // NOLINT(concurrency-mt-unsafe): read only
  const unsigned seed = given == nullptr ? usual : static_cast<unsigned>(std::strtoul(given, nullptr, 10));
  std::printf("%s: GRADWIRE_TEST_SEED=%u\n", test, seed);
  std::fflush(stdout);  // before a sanitizer writes
  return seed;
}

inline nlohmann::json nasty_value(std::mt19937& random) {
  using nlohmann::json;
  static const std::vector<json> kValues{0,
                                         -1,
                                         1,
                                         0.5,
                                         -0.0,
                                         1e300,
                                         -1e300,
                                         5e-324,
                                         9007199254740993,
                                         std::numeric_limits<std::int64_t>::min(),
                                         std::numeric_limits<std::uint64_t>::max(),
                                         std::numeric_limits<std::int32_t>::max(),
                                         1 << 20,
                                         nullptr,
                                         true,
                                         "",
                                         "\x1b[2J",
                                         "<script>",
                                         std::string(300, 'x'),
                                         std::string("a\0b", 3),
                                         json::array(),
                                         json::array({1, 2}),
                                         json::object(),
                                         json::array({json::array({json::object()})})};
  return kValues[random() % kValues.size()];
}

/// Replaces, removes or doubles a value somewhere in `root`.
inline void damage(nlohmann::json& root, std::mt19937& random) {
  nlohmann::json* at = &root;
  while ((at->is_object() || at->is_array()) && !at->empty() && random() % 8 != 0) {
    auto next = at->begin();
    std::advance(next, static_cast<std::ptrdiff_t>(random() % at->size()));
    if (random() % 24 == 0) {
      at->erase(next);
      return;
    }
    if (at->is_array() && random() % 16 == 0) {
      at->push_back(nlohmann::json(*next));
      return;
    }
    at = &*next;
  }
  *at = nasty_value(random);
}

}  // namespace gradwire::test
