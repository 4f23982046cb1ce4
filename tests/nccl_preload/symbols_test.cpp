// Tests that the drop-in defines every function with a pnccl twin in the installed NCCL, nothing else, and does not
// load NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "nccl_preload/run_apart.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

std::set<std::string> matches(const std::string& text, const std::string& pattern) {
  std::set<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

std::set<std::string> symbols(const std::string& options, const std::string& library, const std::string& pattern) {
  const OutcomeApart nm = run_apart("LC_ALL=C", "nm -D " + options + " '" + library + "'");
  EXPECT_EQ(nm.status, 0) << nm.err;
  return matches(nm.out, pattern);
}

// Mutation tried: a FORWARD line is missing.
TEST(NcclSymbols, AllOfTheInstalledLibrary) {
  const std::set<std::string> library = symbols("--defined-only", GRADWIRE_NCCL_LIBRARY, " T p(nccl\\w+)\n");
  EXPECT_GE(library.size(), 40U);
  EXPECT_EQ(symbols("--defined-only", GRADWIRE_DROP_IN, " [A-Z] (nccl\\w+)\n"), library);
}

TEST(NcclSymbols, AllOfTheHeader) {
  const std::set<std::string> drop_in = symbols("--defined-only", GRADWIRE_DROP_IN, " [A-Z] (nccl\\w+)\n");
  const std::set<std::string> header = matches(read_text(GRADWIRE_NCCL_HEADER), "\n(?:const )?\\w+[ *]+(nccl\\w+)\\(");
  EXPECT_GE(header.size(), 40U);
  for (const std::string& function : header) {
    EXPECT_TRUE(drop_in.contains(function)) << function;
  }
}

// replace/nccl.h renames exactly the functions that the drop-in defines under the other name.
TEST(NcclSymbols, AllOfTheReplacement) {
  const std::string header = read_text(GRADWIRE_SOURCE_DIR "/include/gradwire/replace/nccl.h");
  const std::set<std::string> offered = symbols("--defined-only", GRADWIRE_DROP_IN, " [A-Z] gradwire_(nccl\\w+)\n");
  EXPECT_GE(offered.size(), 20U);
  EXPECT_EQ(matches(header, "\nGRADWIRE_REPLACE\\((nccl\\w+)\\)"), offered);
  EXPECT_EQ(matches(header, "\n#define nccl\\w+ gradwire_(nccl\\w+)"), offered);
  EXPECT_EQ(matches(header, "\n#define (nccl\\w+) gradwire_nccl\\w+"), offered);
}

// Mutation tried: a function is missing from the table.
TEST(NcclSymbols, TheDocumentNamesAllOfThem) {
  const std::string page = read_text(GRADWIRE_SOURCE_DIR "/docs/how-to/drop-in-nccl.md");
  const std::string table = page.substr(page.find("\n## All functions\n"));
  const std::string rows = table.substr(0, table.find("\n## ", 1));
  std::string names;  // of the first column
  std::istringstream lines(rows);
  for (std::string line; std::getline(lines, line);) {
    names += line.starts_with("| ") ? line.substr(0, line.find('|', 1)) : "";
  }
  EXPECT_EQ(matches(names, "`(nccl\\w+)`"), symbols("--defined-only", GRADWIRE_DROP_IN, " [A-Z] (nccl\\w+)\n"));
  EXPECT_THAT(rows, ::testing::HasSubstr(std::to_string(matches(names, "`(nccl\\w+)`").size()) + " of them"));
}

TEST(NcclSymbols, NothingElse) {
  EXPECT_THAT(symbols("--defined-only", GRADWIRE_DROP_IN, " [A-Z] (?!nccl|gradwire_nccl)(\\S+)\n"),
              ::testing::IsEmpty());
  const OutcomeApart dynamic = run_apart("LC_ALL=C", "readelf -d '" GRADWIRE_DROP_IN "'");
  const std::set<std::string> needed = matches(dynamic.out, "NEEDED.*\\[(\\S+)\\]");
  EXPECT_THAT(needed, ::testing::Contains("libc.so.6"));
  EXPECT_THAT(needed, ::testing::Each(::testing::Not(::testing::ContainsRegex("nccl|cuda|prometheus|civetweb"))));
}

}  // namespace
}  // namespace gradwire::test
