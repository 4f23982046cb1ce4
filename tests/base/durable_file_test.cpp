// Tests files that are either whole or absent: obstacles to writing, and what remains of a file that was not finished.
#include "base/durable_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <iterator>
#include <stdexcept>

#include "base/regular_file.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace {
int g_sync_of_folders = 0;  // errno; 0 makes the system's call
int g_sync_of_files = 0;
}  // namespace

// Replaces fsync() of the C library for this whole process.
extern "C" int fsync(int fd) {
  struct stat status {};
  const bool folder = ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
  errno = folder ? g_sync_of_folders : g_sync_of_files;
  return errno == 0 ? static_cast<int>(::syscall(SYS_fsync, fd)) : -1;
}

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

// Another user of a shared folder may have put a link there. Mutation tried: the unfinished file is STATE.tmp.
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

// Makes writes fail in the middle, as on a full disk.
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

// Some filesystems, and filters of system calls, do not support fsync. Mutation tried: only EINVAL counts as that.
TEST(DurableFile, AFilesystemThatCannotSyncTakesAFileAllTheSame) {
  const auto attempt = [](int& what, int reason) {
    const ScratchFolder folder;
    what = reason;
    std::string told;
    try {
      save(folder.path(), "one");
      EXPECT_EQ(read_text(folder.path() / "state"), "one");
    } catch (const Error& error) {
      told = error.what();
    }
    what = 0;
    return told;
  };
  for (const int none : {EINVAL, ENOSYS, ENOTSUP, EPERM}) {
    EXPECT_EQ(attempt(g_sync_of_folders, none), "") << none;
    EXPECT_EQ(attempt(g_sync_of_files, none), "") << none;
  }
  EXPECT_EQ(attempt(g_sync_of_folders, EBADF), "");
  EXPECT_THAT(attempt(g_sync_of_files, EBADF), HasSubstr("cannot be brought to the disk (Bad file descriptor)"));
  EXPECT_THAT(attempt(g_sync_of_files, EIO), HasSubstr("cannot be brought to the disk (Input/output error)"));
  EXPECT_THAT(attempt(g_sync_of_folders, EIO), HasSubstr("cannot be brought to the disk (Input/output error)"));
}

// If a folder cannot be made, as on a read-only mount, the error gives the reason instead of saying that it is missing.
TEST(DurableFile, SaysWhyAFolderCannotBeMade) {
  const ScratchFolder folder;
  std::ofstream(folder.file("file")) << "x";
  EXPECT_THAT(error_of([&] { save(folder.path() / "file/deep/er", "x"); }).what(), HasSubstr("(Not a directory)"));
  EXPECT_THAT(error_of([&] { save("/sys/kernel/none", "x"); }).what(),
              ::testing::AnyOf(HasSubstr("(Operation not permitted)"), HasSubstr("(Read-only file system)"),
                               HasSubstr("(Permission denied)")));
}

unsigned mode_of(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? status.st_mode & 0777U : 0;
}

void report(const std::string& file, const std::string& text, Readers readers = Readers::everybody) {
  write_report_file(
      file, [&](std::ostream& stream) { stream << text; }, readers);
}

class Report : public ::testing::Test {
 protected:
  Report() : mask_(::umask(022)) {}
  ~Report() override { ::umask(mask_); }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }

  const mode_t mask_;
  const ScratchFolder folder_;
};

// Mutations tried: the file is opened in place; its mode is changed by name.
TEST_F(Report, ReplacesALinkAndNotWhatItLeadsTo) {
  std::ofstream(file("victim")) << "precious";
  ASSERT_EQ(::chmod(file("victim").c_str(), 0600), 0);
  std::filesystem::create_symlink(file("victim"), file("a"));
  std::filesystem::create_symlink(file("nothing"), file("b"));
  for (const char* name : {"a", "b"}) {
    report(file(name), "one");
    EXPECT_EQ(read_text(file(name)), "one");
    EXPECT_FALSE(std::filesystem::is_symlink(file(name)));
    EXPECT_EQ(mode_of(file(name)), 0644U);
  }
  EXPECT_EQ(read_text(file("victim")), "precious");
  EXPECT_EQ(mode_of(file("victim")), 0600U);
  EXPECT_FALSE(std::filesystem::exists(file("nothing")));
}

TEST_F(Report, ItsOwnerMayCloseItToOthers) {
  report(file("a"), "one");
  EXPECT_EQ(mode_of(file("a")), 0644U);
  for (const mode_t mode : {0640U, 0600U}) {
    ASSERT_EQ(::chmod(file("a").c_str(), mode), 0);
    report(file("a"), "two");
    EXPECT_EQ(mode_of(file("a")), mode);
  }
  ::umask(077);
  report(file("b"), "one");
  EXPECT_EQ(mode_of(file("b")), 0600U);
  EXPECT_EQ(files_in(folder_.path()), 2);
}

// Mutation tried: the mode is that of a report for everybody.
TEST_F(Report, IsItsOwnersAloneUnlessOthersMayReadIt) {
  for (const mode_t mask : {000U, 022U, 077U}) {
    ::umask(mask);
    std::filesystem::remove(file("a"));
    report(file("a"), "one", Readers::owner);
    EXPECT_EQ(mode_of(file("a")), 0600U);
    ASSERT_EQ(::chmod(file("a").c_str(), 0644), 0);
    write_report_file(file("a"), [](std::ostream& stream) { stream << "two"; });
    EXPECT_EQ(mode_of(file("a")), 0600U) << "the usual readers";
  }
}

TEST_F(Report, APipeIsWrittenToAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { report(file("pipe"), "one"); }).what(),
              HasSubstr(file("pipe") + ": cannot be written (No such device or address)"));
  const int reader = ::open(file("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // NOLINT(*-vararg)
  ASSERT_GE(reader, 0);
  report(file("pipe"), "one");
  report("/dev/fd/" + std::to_string(::open(file("pipe").c_str(), O_WRONLY | O_CLOEXEC)), "two");  // NOLINT(*-vararg)
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 6);
  EXPECT_STREQ(text, "onetwo");
  EXPECT_TRUE(std::filesystem::is_fifo(file("pipe")));
  report("/dev/null", "one");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_THAT(error_of([&] { report("/dev/full", "one"); }).what(), HasSubstr("(No space left on device)"));
}

TEST_F(Report, IsInAFolderThatIsThereAndIsNoFolder) {
  EXPECT_THAT(error_of([&] { report(file("no/a"), "one"); }).what(),
              HasSubstr(file("no/a") + ": cannot be written (No such file or directory)"));
  EXPECT_THAT(error_of([&] { report(folder_.path().string(), "one"); }).what(), HasSubstr("(Is a directory)"));
  EXPECT_EQ(files_in(folder_.path()), 0);
}

// Two jobs may write a report with the same name at the same time: the file that the other one has begun stays.
TEST_F(Report, ClearsAwayOnlyWhatIsOld) {
  for (const char* name : {"a.0123456789abcdef.tmp", "a.0123456789abcde0.tmp"}) {
    std::ofstream(file(name)) << "half";
  }
  using std::filesystem::file_time_type;
  std::filesystem::last_write_time(file("a.0123456789abcde0.tmp"),
                                   file_time_type::clock::now() - std::chrono::hours(1));
  report(file("a"), "one");
  EXPECT_TRUE(std::filesystem::exists(file("a.0123456789abcdef.tmp")));
  EXPECT_EQ(files_in(folder_.path()), 2);
}

TEST(RegularFile, AStreamOfItHasAllBytesAndNoPipeHoldsIt) {
  const ScratchFolder folder;
  std::string text(200'000, 'x');
  text.back() = 'y';
  std::ofstream(folder.file("a")) << text;
  RegularFileStream stream(folder.path() / "a", "thing");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), text);
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { RegularFileStream(folder.path() / "pipe", "thing"); }).what(),
              HasSubstr("thing " + folder.file("pipe") + ": it is a pipe"));
}

}  // namespace
}  // namespace gradwire::test
