// Tests that nobody takes one header for another: no two of them have names that differ in one letter only.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "repository/layering.hpp"

namespace gradwire::repository {
namespace {

/// Whether `longer` is `shorter` with one more letter: anywhere, or only at the end.
bool adds_a_letter(const std::string& shorter, const std::string& longer, bool at_end) {
  if (longer.size() != shorter.size() + 1) {
    return false;
  }
  const auto [in_shorter, in_longer] = std::mismatch(shorter.begin(), shorter.end(), longer.begin());
  return (!at_end || in_shorter == shorter.end()) && std::isalpha(static_cast<unsigned char>(*in_longer)) != 0 &&
         std::equal(in_shorter, shorter.end(), in_longer + 1);
}

/// Whether the names differ in one letter at the same place. Digits may differ: int4 and int8 are two codecs.
bool swaps_a_letter(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) {
    return false;
  }
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin());
  return in_a != a.end() && std::isdigit(static_cast<unsigned char>(*in_a)) == 0 &&
         std::equal(in_a + 1, a.end(), in_b + 1);
}

/// "ring" and "rings" are alike wherever they stand, "role" and "rule" only in the same folder.
bool are_alike(const std::filesystem::path& first, const std::filesystem::path& second) {
  std::string a = first.stem().string();
  std::string b = second.stem().string();
  if (a.size() > b.size()) {
    std::swap(a, b);
  }
  const bool neighbours = first.parent_path() == second.parent_path();
  return adds_a_letter(a, b, !neighbours) || (neighbours && swaps_a_letter(a, b));
}

/// The pairs of headers that are alike, as "FIRST and SECOND".
std::vector<std::string> pairs_alike(const std::vector<std::filesystem::path>& headers) {
  std::vector<std::string> pairs;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    for (std::size_t j = i + 1; j < headers.size(); ++j) {
      if (are_alike(headers[i], headers[j])) {
        pairs.push_back(headers[i].string() + " and " + headers[j].string());
      }
    }
  }
  return pairs;
}

TEST(HeaderNames, DifferByMoreThanALetter) {
  const std::map<std::string, std::string> exceptions = {
      {"include/gradwire/table.hpp and include/gradwire/tables.h", "users include both names, in C++ and in C"}};
  std::vector<std::filesystem::path> headers;
  for (const char* folder : {"bench", "include", "kernels", "plugins", "src", "tests"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kRepository / folder)) {
      const std::string extension = entry.path().extension().string();
      if (entry.is_regular_file() && (extension == ".hpp" || extension == ".h" || extension == ".cuh")) {
        headers.push_back(entry.path().lexically_relative(kRepository));
      }
    }
  }
  ASSERT_GT(headers.size(), 400U) << "the walk over the tree finds too little";
  std::sort(headers.begin(), headers.end());
  std::set<std::string> found;
  for (const std::string& pair : pairs_alike(headers)) {
    found.insert(pair);
    EXPECT_TRUE(exceptions.contains(pair)) << pair << " differ in one letter; rename one, or merge them";
  }
  for (const auto& [pair, reason] : exceptions) {
    EXPECT_TRUE(found.contains(pair)) << pair << " is no exception any more: " << reason;
  }
}

TEST(HeaderNames, FabricatedPairsAreJudged) {
  const auto alike = [](const char* first, const char* second) { return !pairs_alike({first, second}).empty(); };
  EXPECT_TRUE(alike("src/observe/ring.hpp", "src/observe/rings.hpp"));
  EXPECT_TRUE(alike("src/observe/rings.hpp", "plugins/mpi_preload/ring.h"));
  EXPECT_TRUE(alike("plugins/mpi_preload/interpose.hpp", "plugins/mpi_preload/interposed.hpp"));
  EXPECT_TRUE(alike("src/policy/rule.hpp", "src/policy/role.hpp"));
  EXPECT_TRUE(alike("src/watch/chart.hpp", "src/watch/cart.hpp"));
  EXPECT_FALSE(alike("src/policy/rule.hpp", "tests/mpi_preload/role.h"));
  EXPECT_FALSE(alike("src/watch/chart.hpp", "src/plan/cart.hpp"));
  EXPECT_FALSE(alike("kernels/int4.hpp", "kernels/int8.hpp"));
  EXPECT_FALSE(alike("src/base/units.hpp", "src/watch/page/units.hpp"));
  EXPECT_FALSE(alike("src/observe/ring.hpp", "src/observe/thread_rings.hpp"));
}

}  // namespace
}  // namespace gradwire::repository
