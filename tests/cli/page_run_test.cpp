// Tests gradwire report, and gradwire run --report DIRECTORY: the files that they leave, however the job ends.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "cli/page_support.hpp"
#include "cli/report_json.hpp"
#include "cli/tool.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class PageRun : public ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    std::filesystem::create_directories(folder_ / "left");
    write_histories(planned_job({.rank =
                                     [](int rank) {
                                       return PlannedRank{.compute = rank == 2 ? 0.045 : 0.025,
                                                          .wait = rank == 2 ? 0.001 : 0.02};
                                     }}),
                    folder_ / "left");
  }
  void expect_page(const std::string& html, const std::string& json) const {
    const std::string page = read_text(folder_ / html);
    EXPECT_THAT(page, HasSubstr("Ranks wait 40% of a step for rank 2"));
    const auto numbers = nlohmann::ordered_json::parse(read_text(folder_ / json), nullptr, false);
    ASSERT_FALSE(numbers.is_discarded()) << json;
    EXPECT_THAT(differences(page, numbers), IsEmpty());
  }
};

TEST_F(PageRun, AReportGoesBesideTheHistoriesOrWhereTheUserSays) {
  const Outcome outcome = gradwire("report left");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("Ranks wait 40% of a step for rank 2"));
  EXPECT_THAT(outcome.output, HasSubstr("page: left/report.html\nnumbers: left/report.json\n"));
  expect_page("left/report.html", "left/report.json");
  EXPECT_EQ(gradwire("report left -o elsewhere.html --json n.json").status, 0);
  expect_page("elsewhere.html", "n.json");
  EXPECT_EQ(gradwire("report left --output other.html").status, 0);
  expect_page("other.html", "other.json");
}

TEST_F(PageRun, TheJsonOfCallsIsShownAsATable) {
  std::ofstream(folder_ / "calls.json") << kReport;
  const Outcome outcome = gradwire("report calls.json");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("layer1.weight"));
  EXPECT_THAT(outcome.output, HasSubstr("calls: 24, compressed: 12;"));
  const Outcome refused = gradwire("report calls.json --json n.json");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("leave out --output, --json, --job and a second name"));
  EXPECT_NE(gradwire("report nowhere.json").status, 0);
}

TEST_F(PageRun, TwoRunsAreComparedOnOnePage) {
  std::filesystem::create_directories(folder_ / "other");
  write_histories(planned_job({.ratio = 2}), folder_ / "other");
  const Outcome outcome = gradwire("report left other");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "page: other/comparison.html\nnumbers: other/comparison.json\n");
  EXPECT_THAT(read_text(folder_ / "other/comparison.html"), HasSubstr("<h1>Two runs compared</h1>"));
  EXPECT_EQ(gradwire("report left other").status, 0) << "it replaces its own page";
  EXPECT_EQ(gradwire("report left other -o both.html").status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "both.json"));
  const Outcome unknown = gradwire("report left --job a --job b");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output, HasSubstr("left holds no history of the job a"));
  EXPECT_THAT(gradwire("report left --job a --job b --job c").output, HasSubstr("--job is given 3 times"));
}

TEST_F(PageRun, AComparisonTellsWhatIsMissingOfEitherRun) {
  std::filesystem::create_directories(folder_ / "other");
  write_histories(planned_job({.ratio = 2}), folder_ / "other");
  std::filesystem::remove(folder_ / "left/gradwire-library-rank-1.history");
  write("other/gradwire-library-rank-3.history", "{");
  const Outcome outcome = gradwire("report left other");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("note: A: rank 1 of 4 left no history here"));
  EXPECT_THAT(outcome.output, HasSubstr("note: B: gradwire-library-rank-3.history is cut off or damaged"));
  EXPECT_THAT(outcome.output, HasSubstr("note: B: rank 3 of 4 left no history here"));
  const std::string page = read_text(folder_ / "other/comparison.html");
  EXPECT_THAT(page, HasSubstr("<h2>What is missing</h2><ul class=notes><li>A: rank 1 of 4 left no history here"));
  EXPECT_THAT(page, HasSubstr("<li>B: rank 3 of 4 left no history here"));
}

TEST_F(PageRun, WhatCannotBeReportedIsRefused) {
  const std::vector<std::array<std::string, 2>> refused{
      {"report nowhere", "nowhere is not there; name the directory that GRADWIRE_REPORT named"},
      {"report bin", "bin holds no history of a rank; start the job with GRADWIRE_REPORT=bin"},
      {"report left -o page.json", "give the page a name such as report.html"},
      {"report left -o -", "- is no file; the page and its numbers go to files"},
      {"report left -o page.html --json ./page.html", "--output and --json both name page.html"},
      {"report left -o no/such/folder/p.html", "no/such/folder"},
      {"report left left left", "left is one directory too many; a page shows one run, or compares two"},
      {"report left --bogus", "--bogus"},
      {"report", "directory is required"}};
  for (const auto& [arguments, text] : refused) {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    const Outcome outcome = gradwire(arguments);
    if (arguments.find("no/such") == std::string::npos) {  // that folder is created
      EXPECT_EQ(outcome.status, 2) << arguments << outcome.output;
      EXPECT_THAT(outcome.output, HasSubstr(text));
    }
  }
}

TEST_F(PageRun, RunMakesAPageOfWhatTheRanksLeft) {
  write_script("job", "echo \"[$GRADWIRE_REPORT]\"; cp left/gradwire-* \"$GRADWIRE_REPORT\"; exit 3\n");
  std::filesystem::create_directories(folder_ / "out");
  for (const char* earlier : {"gradwire-mpi-rank-9.history", "calls-6.json", "mine.txt"}) {
    write("out/" + std::string(earlier), "old");
  }
  write("out/report.html", "");  // an empty file loses nothing
  write("out/calls-5.json", R"({"gradwire": "0.1.0", "classes": [], "totals": {}})");
  const Outcome outcome = gradwire("run --report out -- ./job");
  EXPECT_EQ(outcome.status, 3) << "the status is that of a failed job, too";
  EXPECT_THAT(outcome.output, HasSubstr("[" + (folder_ / "out").string() + "]"));
  EXPECT_THAT(outcome.output, HasSubstr("gradwire: Ranks wait 40% of a step for rank 2"));
  EXPECT_THAT(outcome.output, HasSubstr("gradwire: the report is " + (folder_ / "out/report.html").string() + "\n"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("warning"))) << "a job of sessions makes no replaced calls";
  expect_page("out/report.html", "out/report.json");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/gradwire-mpi-rank-9.history")) << "it is an earlier job's file";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/calls-5.json"));
  EXPECT_EQ(read_text(folder_ / "out/calls-6.json"), "old") << "this file belongs to another program";
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/mine.txt"));
}

TEST_F(PageRun, FilesOfOthersStayWhereTheyAre) {
  for (const char* foreign : {"report.html", "report.json", "calls-7.json", "package.json"}) {
    write(foreign, "mine");
  }
  const Outcome before = gradwire("run --report . -- touch ran");
  EXPECT_EQ(before.status, 2);
  EXPECT_THAT(before.output, HasSubstr("report.html was not made by gradwire report, and would be lost; move it away"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "ran")) << "the error comes before a job that may take long";
  const Outcome refused = gradwire("run --report package.json -- true");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("package.json is no report of gradwire, and would be lost; name another file"));
  for (const char* foreign : {"report.html", "report.json", "calls-7.json", "package.json"}) {
    EXPECT_EQ(read_text(folder_ / foreign), "mine") << foreign;
  }
}

TEST_F(PageRun, APageReplacesAPageAndNothingElse) {
  for (const std::string foreign : {"left/report.html", "left/report.json"}) {
    EXPECT_EQ(gradwire("report left").status, 0);
    EXPECT_EQ(gradwire("report left").status, 0) << "it replaces its own report again";
    std::filesystem::remove(folder_ / "left/report.html");
    std::filesystem::remove(folder_ / "left/report.json");
    write(foreign,
          foreign.ends_with("json") ? R"({"report": "of coverage"})" : "<!DOCTYPE html><title>Coverage</title>");
    const Outcome refused = gradwire("report left");
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.output, HasSubstr(foreign + " was not made by gradwire report, and would be lost"));
    EXPECT_THAT(read_text(folder_ / foreign), HasSubstr("overage"));
    EXPECT_EQ(std::filesystem::exists(folder_ / "left/report.html"), foreign == "left/report.html")
        << "both files are replaced, or none";
    EXPECT_EQ(gradwire("report left -o other.html").status, 0);
    EXPECT_EQ(gradwire("report left -o left/report.html").status, 2) << "the same holds if the page is named";
    std::filesystem::remove(folder_ / foreign);
  }
}

TEST_F(PageRun, ADirectoryOfTheEnvironmentIsUsedToo) {
  write_script("job", "cp left/gradwire-* \"$GRADWIRE_REPORT\"\n");
  const Outcome outcome = run_program("cd '" + folder_.string() +
                                      "' && GRADWIRE_REPORT=made/here timeout -k 5 60 bin/gradwire run -- ./job");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  expect_page("made/here/report.html", "made/here/report.json");
}

TEST_F(PageRun, AJobThatLeavesNothingIsTold) {
  const Outcome outcome = gradwire("run --report out -- true");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("no page was made: " + (folder_ / "out").string() + " holds no history"));
}

TEST_F(PageRun, AFileOfAnotherNameIsNoDirectory) {
  write("table.txt", "mine");
  const Outcome outcome = gradwire("run --report table.txt -- true");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("table.txt is a file; name a directory, or a file that ends in .json"));
  EXPECT_EQ(read_text(folder_ / "table.txt"), "mine");
}

TEST_F(PageRun, APageIsReadableAsTheUmaskSays) {
  const auto mode = [&](const std::string& mask) {
    std::filesystem::remove(folder_ / "left/report.html");
    const Outcome outcome =
        run_program("cd '" + folder_.string() + "' && umask " + mask + " && bin/gradwire report left");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return static_cast<unsigned>(std::filesystem::status(folder_ / "left/report.html").permissions());
  };
  EXPECT_EQ(mode("077"), 0600U);
  EXPECT_EQ(mode("022"), 0644U);
  EXPECT_EQ(mode("000"), 0644U) << "otherwise others could write code that a browser runs";
}

// Another user may write to the folder. Mutation tried: the mode is changed by name.
TEST_F(PageRun, APageReplacesALinkAndChangesNothingBehindIt) {
  ASSERT_EQ(gradwire("report left -o victim.html").status, 0);
  std::filesystem::permissions(folder_ / "victim.html", std::filesystem::perms(0600));
  const auto written = std::filesystem::last_write_time(folder_ / "victim.html");
  std::filesystem::create_symlink(folder_ / "none", folder_ / "page.json");
  std::filesystem::create_symlink(folder_ / "victim.html", folder_ / "page.html");
  const Outcome outcome = gradwire("report left -o page.html");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none"));
  EXPECT_FALSE(std::filesystem::is_symlink(folder_ / "page.html"));
  EXPECT_EQ(static_cast<unsigned>(std::filesystem::status(folder_ / "victim.html").permissions()), 0600U);
  EXPECT_EQ(std::filesystem::last_write_time(folder_ / "victim.html"), written);
}

// Other programs may have left anything under our names.
TEST_F(PageRun, PipesAndFoldersAmongTheHistoriesAreNamed) {
  ASSERT_EQ(::mkfifo((folder_ / "left/gradwire-mpi-rank-7.history").c_str(), 0600), 0);
  std::filesystem::create_directories(folder_ / "left/gradwire-mpi-rank-8.history");
  const Outcome outcome = gradwire("report left");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("gradwire-mpi-rank-7.history: it is a pipe, a socket or a device"));
  EXPECT_THAT(outcome.output, HasSubstr("gradwire-mpi-rank-8.history: it is a folder"));
  ASSERT_EQ(::mkfifo((folder_ / "left/gradwire-mpi-rank-7.prom").c_str(), 0600), 0);
  const Outcome top = gradwire("top --once left");
  EXPECT_NE(top.status, 124) << "it waits for a writer of the pipe";
  EXPECT_THAT(top.output, HasSubstr("it is a pipe"));
  ASSERT_EQ(::mkfifo((folder_ / "left/gradwire-mpi-rank-7.events").c_str(), 0600), 0);
  const Outcome trace = gradwire("trace summary left");
  EXPECT_EQ(trace.status, 2) << trace.output;
  EXPECT_THAT(trace.output, HasSubstr("gradwire-mpi-rank-7.events: it is a pipe"));
}

TEST_F(PageRun, NoEscapeOfAFileReachesTheTerminal) {
  write("left/gradwire-\x1b[2J-rank-9.history", "{");
  write("left/gradwire-\x1b[2J-rank-9.events", "{");
  for (const char* command : {"report left", "trace summary left", "run --report left -- true", "top --once left"}) {
    const Outcome outcome = gradwire(command);
    EXPECT_THAT(outcome.output, Not(HasSubstr("\x1b"))) << command;
  }
  EXPECT_THAT(gradwire("trace summary left").output, HasSubstr("gradwire-?[2J-rank-9.events"));
}

}  // namespace
}  // namespace gradwire::test
