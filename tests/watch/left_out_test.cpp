// Tests that a program that leaves the library `watch` out says so if a user asks to be shown something, and works.
// Every other program is watched without a change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kWatched = GRADWIRE_WATCHED;
const std::string kLeftOut = GRADWIRE_LEFT_OUT;

std::string content(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

std::string asking(const ScratchFolder& folder) {
  return "GRADWIRE_JOB=tried GRADWIRE_METRICS='file:" + folder.file("m") + "' GRADWIRE_REPORT='" + folder.file("r") +
         "' GRADWIRE_TRACE='" + folder.file("t") + "' ";
}

TEST(LeftOut, OtherProgramsAreWatched) {
  const ScratchFolder folder;
  const Outcome outcome = run_program(asking(folder) + kWatched);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("results 4.0 4.0"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("warning")));
  for (const char* file : {"m/gradwire-library-rank-1-job-tried.prom", "r/gradwire-library-rank-1-job-tried.history",
                           "t/gradwire-library-rank-0.events"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path() / file)) << file;
  }
}

TEST(LeftOut, AProgramWithoutWatchWorksAndSaysSoInOneLine) {
  const ScratchFolder folder;
  const Outcome outcome = run_program(asking(folder) + kLeftOut);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("results 4.0 4.0"));
  EXPECT_THAT(outcome.output,
              HasSubstr("GRADWIRE_METRICS, GRADWIRE_TRACE, GRADWIRE_REPORT: this program leaves out what writes "
                        "metrics, traces and histories (gradwire/without_watch.hpp), so nothing is written\n"));
  EXPECT_EQ(count(outcome.output, "\n"), 2U) << "the line and the results:\n" << outcome.output;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(LeftOut, NothingIsSaidWhereNobodyAsks) {
  for (const std::string& program : {kWatched, kLeftOut}) {
    EXPECT_EQ(run_program("env -u GRADWIRE_METRICS -u GRADWIRE_TRACE -u GRADWIRE_REPORT " + program).output,
              "results 4.0 4.0\n");
  }
}

// A file of an archive to which nothing refers is not linked.
TEST(LeftOut, TheProgramHoldsNothingOfTheLibrary) {
  const auto holds = [](const std::string& program) {
    return content(program).find("gradwire_exposed_seconds_total") != std::string::npos;
  };
  EXPECT_TRUE(holds(kWatched));
  if (GRADWIRE_IS_AN_ARCHIVE) {
    EXPECT_FALSE(holds(kLeftOut));
    EXPECT_LT(std::filesystem::file_size(kLeftOut), std::filesystem::file_size(kWatched));
  }
}

}  // namespace
}  // namespace gradwire::test
