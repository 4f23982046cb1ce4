// Tests who may read the files that jobs and the tool write, and that no file repeats a secret of a command line.
//
// Under umask 000 a file has the mode that it was made with, and WrittenFiles.OneFunctionMakesAllFiles says that
// nothing else makes a file or changes a mode: so the mode at the end is the mode at every moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kMarked = "q7Zp0marked1Xw9";

struct Kind {
  std::string pattern;  // of the path below the folder
  unsigned mode;
};

// Every kind of file that the jobs below write. A file of no kind fails the test, and so does a kind without a file.
const std::vector<Kind> kKinds{
    {R"(metrics/gradwire-library-rank-\d-job-tried\.prom)", 0644},  // node_exporter is another user
    {R"(otlp/gradwire-library-rank-\d-job-tried\.otlp\.jsonl)", 0644},
    {R"(report/gradwire-library-rank-\d-job-tried\.history)", 0600},
    {R"(report/report\.json)", 0600},
    {R"(report/report\.html)", 0644},
    {R"(trace/gradwire-library-rank-0\.events)", 0600},
    {R"(trace\.pftrace)", 0600},
    {R"(gradients/index\.json)", 0600},
    {R"(gradients/.*\.npy)", 0600},
    {R"(ratio\.json)", 0600},
    {R"(ratio\.svg)", 0644},
    {R"(state/rank-\d-of-2\.gradwire)", 0600},
    {R"(state/rank-\d-of-2\.gradwire\.previous)", 0600},
    {R"(table/users-.*)", 0600},
    {R"(checkpoints/.*)", 0600},
    {R"(drop-in/calls-\d+\.json)", 0600},
    {R"(drop-in/gradwire-mpi-rank-\d-job-.*\.history)", 0600},
    {R"(drop-in/report\.json)", 0600},
    {R"(drop-in/report\.html)", 0644},
};

// Runs a job with everything on, a job under the drop-in, and the tool over what they left.
void write_everything(const ScratchFolder& folder, const std::string& umask) {
  const std::string here = "umask " + umask + " && cd '" + folder.path().string() + "' && ";
  const std::string as_root = ::geteuid() == 0 ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " : "";
  const std::string tool = GRADWIRE_TOOL;
  const std::string secret = std::string(" --api-token ") + kMarked + " --db-password=" + kMarked +
                             " DB_SECRET=" + kMarked + " s3://user:" + kMarked + "@host/data";
  const std::vector<std::string> commands{
      "GRADWIRE_JOB=tried GRADWIRE_METRICS=file:metrics,otlp:otlp GRADWIRE_REPORT=report "
      "GRADWIRE_TRACE=trace " GRADWIRE_WRITTEN_JOB " . " +
          secret,
      tool + " report report",
      tool + " trace merge trace -o trace.pftrace",
      tool + " ratio gradients --json ratio.json --svg ratio.svg",
      as_root + tool + " run --report drop-in -- " GRADWIRE_MPIEXEC " -np 2 --oversubscribe " GRADWIRE_MPI_JOB + secret,
  };
  for (const std::string& command : commands) {
    const Outcome outcome = run_program(here + command);
    EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.output;
    EXPECT_THAT(outcome.output, Not(HasSubstr(kMarked))) << command;
  }
}

unsigned mode_of(const fs::path& file) {
  struct stat status {};
  return ::lstat(file.c_str(), &status) == 0 ? status.st_mode & 07777U : 0;
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) {
      files.push_back(entry.path());
    }
  }
  return files;
}

class Umasks : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(WrittenFiles, Umasks, ::testing::Values("000", "022"));

// Mutations tried: files have mode 0644; names of secrets are compared in one case only.
TEST_P(Umasks, WhatOthersMayRead) {
  const ScratchFolder folder;
  write_everything(folder, GetParam());
  std::set<std::string> seen;
  for (const fs::path& file : files_below(folder.path())) {
    const std::string name = file.lexically_relative(folder.path()).string();
    const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                   [&](const Kind& each) { return std::regex_match(name, std::regex(each.pattern)); });
    if (kind == kKinds.end()) {
      ADD_FAILURE() << name << " is of no known kind";
      continue;
    }
    seen.insert(kind->pattern);
    EXPECT_EQ(mode_of(file), kind->mode) << name;
    EXPECT_THAT(read_text(file), Not(HasSubstr(kMarked))) << name;
  }
  for (const Kind& kind : kKinds) {
    EXPECT_TRUE(seen.contains(kind.pattern)) << "no file " << kind.pattern;
  }
  EXPECT_THAT(read_text(folder.path() / "report/report.html"), HasSubstr("--api-token ***"));
}

// The few files of the product that may contain such a call, and why.
const std::map<std::string, std::string> kExempt{
    {"src/base/written_file.cpp", "the one function"},
    {"src/base/written_file.hpp", "says what it does"},
    {"src/base/unix_socket.cpp", "the mode of a socket, before it has a name"},
    {"src/cli/emulated_link.cpp", "writes to /proc"},
    {"src/memory/scratch_file.cpp", "a file of mode 0600 without a name"},
};

TEST(WrittenFiles, OneFunctionMakesAllFiles) {
  const std::vector<std::string> calls{"O_CREAT", "O_TMPFILE", "ofstream", "fopen(",   "fopen64(",     "creat(",
                                       "mkstemp", "mkostemp",  "chmod(",   "chmodat(", "permissions(", "copy_file("};
  std::vector<std::string> found;
  for (const char* part : {"src", "plugins", "include"}) {
    for (const fs::path& file : files_below(fs::path(GRADWIRE_SOURCE) / part)) {
      const std::string name = file.lexically_relative(GRADWIRE_SOURCE).string();
      if ((file.extension() == ".cpp" || file.extension() == ".hpp" || file.extension() == ".h") &&
          !kExempt.contains(name)) {
        const std::string text = read_text(file);
        for (const std::string& call : calls) {
          if (text.find(call) != std::string::npos) {
            found.push_back(name + ": " + call);
          }
        }
      }
    }
  }
  EXPECT_THAT(found, ::testing::IsEmpty()) << "open files by open_to_write() of base/written_file.hpp";
}

}  // namespace
}  // namespace gradwire::test
