// The scratch file of pages: every way in which a request can fail, and what its errors name.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "file_pages.hpp"
#include "gradwire/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/heard_log.hpp"
#include "tests/support/scratch_file_access.hpp"

namespace gradwire::memory {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string message_of(ErrorCode code, const std::function<void()>& body) {
  const Error error = test::error_of(body);
  EXPECT_EQ(error.code(), code) << error.what();
  return error.what();
}

using PageFileErrors = OverPageFiles;

INSTANTIATE_TEST_SUITE_P(Backends, PageFileErrors, kFileBackends, backend_name);

TEST_P(PageFileErrors, DamagedPagesAreNoticedAndMayBeWrittenAnew) {
  PageFile file(options());
  Block block = pages_of(file, 4, 1);
  write_now(file, 0, block);
  const std::vector<int> again = test::open_scratch_files(folder());
  ASSERT_EQ(again.size(), 1U);
  ASSERT_EQ(::pwrite(again[0], "x", 1, 2 * kFileUnit + 17), 1);
  ::close(again[0]);
  const std::string message = message_of(ErrorCode::corrupt, [&] { read_now(file, 0, 4); });
  EXPECT_THAT(message, HasSubstr(folder().string() + ": page 2 of the scratch file of residuals"));
  EXPECT_THAT(message, HasSubstr("another disk"));
  EXPECT_TRUE(equal(read_now(file, 3, 1), [&] {
    Block last(kFileUnit, MemoryUse::staging);
    std::memcpy(last.data(), block.data() + 3 * kFileUnit, kFileUnit);
    return last;
  }()));
  write_now(file, 0, block);
  EXPECT_TRUE(equal(read_now(file, 0, 4), block));
}

TEST_P(PageFileErrors, AFileThatLostItsEndIsNoticed) {
  PageFile file(options());
  Block block = pages_of(file, 4, 1);
  write_now(file, 0, block);
  const std::vector<int> again = test::open_scratch_files(folder());
  ASSERT_EQ(again.size(), 1U);
  ASSERT_EQ(::ftruncate(again[0], 2 * kFileUnit), 0);
  ::close(again[0]);
  message_of(ErrorCode::corrupt, [&] { read_now(file, 1, 3); });
  read_now(file, 0, 2);
}

// A file system in memory, mounted for a test.
class Mounted {
 public:
  Mounted(const char* type, const char* how) : mounted_(::mount(type, folder_.path().c_str(), type, 0, how) == 0) {}
  ~Mounted() {
    if (mounted_) {
      ::umount2(folder_.path().c_str(), MNT_DETACH);
    }
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  [[nodiscard]] bool done() const { return mounted_; }
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

 private:
  test::ScratchFolder folder_;
  bool mounted_;
};

TEST_P(PageFileErrors, AFullDiskIsAnErrorThatNamesTheFolder) {
  const Mounted disk("tmpfs", "size=192k");
  if (!disk.done()) {
    GTEST_SKIP() << "this user may not mount a small file system";
  }
  PageFileOptions small = options();
  small.folder = disk.path();
  const test::HeardLog logged;
  {
    PageFile file(small);
    EXPECT_FALSE(file.statistics().bypasses_cache);
    Block block = pages_of(file, 32, 1);
    write_now(file, 0, block);
    const std::string message =
        message_of(ErrorCode::invalid_argument, [&] { file.wait(file.write(40, span_of(block))); });
    EXPECT_THAT(message, HasSubstr(disk.path().string()));
    EXPECT_THAT(message, HasSubstr("No space left on device"));
    EXPECT_THAT(message, HasSubstr("make room there"));
    EXPECT_TRUE(equal(read_now(file, 0, 32), block));
    message_of(ErrorCode::internal, [&] { read_now(file, 40, 32); });  // it has no content
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { file.reserve(200); }), HasSubstr("no room for 800KiB"));
  }
  EXPECT_THAT(test::HeardLog::all(), Contains(HasSubstr("lies in memory")));
}

TEST_P(PageFileErrors, AFileSystemWithoutDirectRequestsIsUsedAndNamed) {
  const Mounted disk("ramfs", "");
  if (!disk.done()) {
    GTEST_SKIP() << "this user may not mount a file system";
  }
  PageFileOptions cached = options();
  cached.folder = disk.path();
  const test::HeardLog logged;
  {
    PageFile file(cached);
    EXPECT_FALSE(file.statistics().bypasses_cache);
    Block block = pages_of(file, 5, 1);
    write_now(file, 3, block);
    EXPECT_TRUE(equal(read_now(file, 3, 5), block));
  }
  EXPECT_THAT(test::HeardLog::all(), Contains(HasSubstr("refuses O_DIRECT, so the page cache takes memory")));
}

TEST_P(PageFileErrors, ALimitOfFileSizesIsAnErrorAndNoSignal) {
  PageFile file(options());
  Block block = pages_of(file, 4, 1);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit low { 16 * kFileUnit, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  write_now(file, 12, block);
  const std::string message = message_of(ErrorCode::invalid_argument, [&] { write_now(file, 13, block); });
  message_of(ErrorCode::invalid_argument, [&] { file.reserve(17); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(message, HasSubstr("ulimit -f"));
  write_now(file, 13, block);
}

TEST_P(PageFileErrors, AFolderThatIsNotThereIsNamed) {
  PageFileOptions nowhere = options();
  nowhere.folder /= "nowhere";
  const std::string message = message_of(ErrorCode::invalid_argument, [&] { PageFile file(nowhere); });
  EXPECT_THAT(message, HasSubstr(nowhere.folder.string() + ": no scratch file for residuals"));
  EXPECT_THAT(message, HasSubstr("name a folder that exists"));
}

TEST(PageFileRequests, AReadThatFailsIsNamedAndMayBeRepeated) {
  const test::ScratchFolder folder;
  bool broken = true;
  PageFile file({.folder = folder.path(), .holds = "rows"},
                tampered_threads([&](const FileRequest& what, FileResult& result) {
                  result.bytes = broken && !what.writes ? -EIO : result.bytes;
                }));
  Block block = pages_of(file, 2, 1);
  write_now(file, 7, block);
  const std::string message = message_of(ErrorCode::invalid_argument, [&] { read_now(file, 7, 2); });
  EXPECT_THAT(message, HasSubstr(folder.path().string() + ": page 7 of the scratch file of rows cannot be read"));
  broken = false;
  EXPECT_TRUE(equal(read_now(file, 7, 2), block));
}

TEST(PageFileRequests, WhatTheSystemLeftOutIsMadeAfterwards) {
  const test::ScratchFolder folder;
  int number = 0;
  PageFile file({.folder = folder.path()}, tampered_threads([&](const FileRequest& what, FileResult& result) {
                  const std::array<std::int64_t, 4> ends = {-EAGAIN, 5000, -ECANCELED, 0};
                  result.bytes = ends[static_cast<std::size_t>(number++) % ends.size()];
                  if (!what.writes) {  // what was not read is not there
                    std::memset(what.memory + std::max<std::int64_t>(result.bytes, 0), 0,
                                what.bytes - static_cast<std::size_t>(std::max<std::int64_t>(result.bytes, 0)));
                  }
                }));
  for (PageFile::Page page = 0; page < 8; ++page) {
    Block block = pages_of(file, 4, static_cast<std::uint32_t>(page));
    write_now(file, 4 * page, block);
  }
  for (PageFile::Page page = 0; page < 8; ++page) {
    EXPECT_TRUE(equal(read_now(file, 4 * page, 4), pages_of(file, 4, static_cast<std::uint32_t>(page))));
  }
}

TEST(PageFileRequests, RequestsThatTheSystemDoesNotTakeAreMadeByTheWaiter) {
  struct Refuses final : FileRequests {
    bool begin(const FileRequest& /*request*/) override { return false; }
    void collect(std::vector<FileResult>& /*ended*/, bool /*waits*/) override {}
  };
  const test::ScratchFolder folder;
  PageFile file({.folder = folder.path()}, [](int, std::uint32_t) { return std::make_unique<Refuses>(); });
  Block block = pages_of(file, 3, 1);
  write_now(file, 0, block);
  EXPECT_TRUE(equal(read_now(file, 0, 3), block));
}

}  // namespace
}  // namespace gradwire::memory
