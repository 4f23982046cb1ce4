// Files that are whole or not there: what stands in the way, and what is left when one is not finished.
#include "base/durable_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <stdexcept>

#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

void save(const std::filesystem::path& folder, const std::string& text,
          DurableFile::Old old = DurableFile::Old::replaced) {
  DurableFile file(folder, "state", [&](std::ostream& stream) { stream << text; });
  file.commit(old);
}

std::ptrdiff_t files_in(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(DurableFile, IsItsOwnersAlone) {
  const ScratchFolder folder;
  save(folder.path() / "deep/er", "one");
  EXPECT_EQ(read_text(folder.path() / "deep/er/state"), "one");
  struct stat status {};
  ASSERT_EQ(::stat((folder.path() / "deep/er/state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(files_in(folder.path() / "deep/er"), 1);
}

// Another user of a shared folder may have put a link there. Seen red where the file on its way is STATE.tmp.
TEST(DurableFile, IsNotWrittenThroughLinks) {
  const ScratchFolder folder;
  const std::string victim = folder.file("victim");
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, folder.path() / "state.tmp");
  std::filesystem::create_symlink(victim, folder.path() / "state");
  save(folder.path(), "one");
  EXPECT_EQ(read_text(victim), "precious");
  EXPECT_EQ(read_text(folder.path() / "state"), "one");
  EXPECT_FALSE(std::filesystem::is_symlink(folder.path() / "state"));
}

// As a full disk does: writing fails in the middle.
class SmallFiles {
 public:
  SmallFiles() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{.rlim_cur = 100'000, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(DurableFile, AFullDiskIsNamedAndNothingIsLeftOfIt) {
  const ScratchFolder folder;
  save(folder.path(), "before");
  for (const std::size_t bytes : {100'001U, 5'000'000U}) {
    const SmallFiles limit;
    const Error error = error_of([&] { save(folder.path(), std::string(bytes, 'x')); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(folder.file("state") + ": only a part could be written (File too large)"));
  }
  EXPECT_EQ(read_text(folder.path() / "state"), "before");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(DurableFile, WhatIsNotCommittedLeavesNothing) {
  const ScratchFolder folder;
  EXPECT_THROW(DurableFile(folder.path(), "state", [](std::ostream&) { throw std::runtime_error("no"); }),
               std::runtime_error);
  {
    const DurableFile file(folder.path(), "state", [](std::ostream& stream) { stream << "x"; });
  }
  EXPECT_EQ(files_in(folder.path()), 0);
}

TEST(DurableFile, ClearsAwayWhatAKilledProcessLeft) {
  const ScratchFolder folder;
  for (const char* name : {"state.0123456789abcdef.tmp", "state.0123456789abcde0.tmp"}) {
    std::ofstream(folder.file(name)) << "half";
  }
  std::ofstream(folder.file("other.0123456789abcdef.tmp")) << "another file's";
  save(folder.path(), "one");
  EXPECT_EQ(files_in(folder.path()), 2);
}

TEST(DurableFile, KeepsWhatWasThereBefore) {
  const ScratchFolder folder;
  for (const char* text : {"one", "two", "three"}) {
    save(folder.path(), text, DurableFile::Old::kept);
  }
  EXPECT_EQ(read_text(folder.path() / "state"), "three");
  EXPECT_EQ(read_text(previous_of(folder.path() / "state")), "two");
  EXPECT_EQ(files_in(folder.path()), 2);
}

TEST(DurableFile, AFolderThatCannotServeIsNamed) {
  const ScratchFolder folder;
  std::ofstream(folder.file("file")) << "x";
  EXPECT_THAT(error_of([&] { save(folder.path() / "file", "x"); }).what(),
              HasSubstr(folder.file("file/state") + ": cannot be written (Not a directory)"));
}

}  // namespace
}  // namespace gradwire::test
