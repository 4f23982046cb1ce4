// The scratch file of pages, by io_uring and by threads: contents against a model, its privacy, and every way in which
// a request can fail.
#include "memory/page_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "gradwire/error.hpp"
#include "memory/block.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::memory {
namespace {

using test::ScratchFolder;

Block pages_of(const PageFile& file, std::size_t pages, std::uint32_t seed) {
  Block block(pages * file.page_bytes(), MemoryUse::staging);
  std::mt19937_64 random(seed);
  for (std::size_t at = 0; at < block.bytes(); at += sizeof(std::uint64_t)) {
    const std::uint64_t value = random();
    std::memcpy(block.data() + at, &value, sizeof value);
  }
  return block;
}

std::span<std::byte> span_of(Block& block) { return {block.data(), block.bytes()}; }
bool equal(const Block& a, const Block& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

void write_now(PageFile& file, PageFile::Page first, Block& block) { file.wait(file.write(first, span_of(block))); }
Block read_now(PageFile& file, PageFile::Page first, std::size_t pages) {
  Block block(pages * file.page_bytes(), MemoryUse::staging);
  file.wait(file.read(first, span_of(block)));
  return block;
}

std::string error_of(ErrorCode code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// Opens the scratch file of this process that lies in `folder` once more, as another program could.
int open_again(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with(folder.string() + "/")) {
      return ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    }
  }
  return -1;
}

class PageFileTest : public ::testing::TestWithParam<FileBackend> {
 protected:
  void SetUp() override {
    if (GetParam() == FileBackend::io_uring && make_ring(STDIN_FILENO, 1) == nullptr) {
      GTEST_SKIP() << "this system does not allow io_uring";
    }
  }
  [[nodiscard]] PageFileOptions options(std::size_t page_bytes = kFileUnit, std::uint32_t in_flight = 8) const {
    return {.folder = folder_.path(),
            .holds = "residuals",
            .page_bytes = page_bytes,
            .backend = GetParam(),
            .in_flight = in_flight};
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  ScratchFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Backends, PageFileTest, ::testing::Values(FileBackend::io_uring, FileBackend::threads),
                         [](const auto& backend) { return std::string(to_string(backend.param)); });

TEST_P(PageFileTest, PagesHoldWhatWasWrittenLastInEveryOrder) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const std::size_t page_bytes : {kFileUnit, 16 * kFileUnit}) {
    PageFile file(options(page_bytes, 5));
    EXPECT_EQ(file.statistics().backend, GetParam());
    constexpr std::size_t kPages = 40;
    std::map<PageFile::Page, Block> model;
    std::uint64_t written = 0;
    for (int round = 0; round < 30; ++round) {
      // Pages of one round do not overlap, and more requests are begun than may be under way.
      std::vector<PageFile::Ticket> tickets;
      std::vector<std::pair<PageFile::Page, Block>> reads;
      for (PageFile::Page page = random() % 3; page + 3 < kPages; page += 3) {
        if (random() % 2 == 0 || !model.contains(page) || !model.contains(page + 1)) {
          const std::size_t pages = 1 + random() % 3;
          Block block = pages_of(file, pages, random());
          tickets.push_back(file.write(page, span_of(block)));
          written += block.bytes();
          for (std::size_t i = 0; i < pages; ++i) {
            Block one(page_bytes, MemoryUse::staging);
            std::memcpy(one.data(), block.data() + i * page_bytes, page_bytes);
            model[page + i] = std::move(one);
          }
          reads.emplace_back(kPages, std::move(block));  // keeps the memory
        } else {
          reads.emplace_back(page, Block(2 * page_bytes, MemoryUse::staging));
          tickets.push_back(file.read(page, span_of(reads.back().second)));
        }
      }
      std::shuffle(tickets.begin(), tickets.end(), random);
      for (const PageFile::Ticket& ticket : tickets) {
        file.wait(ticket);
      }
      for (const auto& [page, block] : reads) {
        for (std::size_t i = 0; page < kPages && i < 2; ++i) {
          ASSERT_EQ(std::memcmp(block.data() + i * page_bytes, model.at(page + i).data(), page_bytes), 0) << page + i;
        }
      }
    }
    for (const auto& [page, block] : model) {
      ASSERT_TRUE(equal(read_now(file, page, 1), block)) << page;
    }
    EXPECT_EQ(file.statistics().written, written);
    EXPECT_LE(file.statistics().file_bytes, kPages * page_bytes);
  }
}

TEST_P(PageFileTest, ThreadsShareAFile) {
  PageFile file(options(kFileUnit, 4));
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&file, thread] {
      Block block = pages_of(file, 1, thread);
      for (PageFile::Page i = 0; i < 100; ++i) {
        const PageFile::Ticket ticket = file.write(4 * i + thread, span_of(block));
        while (i % 3 == 0 && !file.done(ticket)) {
        }
        file.wait(ticket);
        EXPECT_TRUE(equal(read_now(file, 4 * (i / 2) + thread, 1), block));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_P(PageFileTest, TheFileIsPrivateAndHasNoName) {
  PageFile file(options());
  Block block = pages_of(file, 3, 1);
  write_now(file, 0, block);
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
  const int again = open_again(folder());
  ASSERT_GE(again, 0);
  struct stat status {};
  ASSERT_EQ(::fstat(again, &status), 0);
  ::close(again);
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_P(PageFileTest, DamagedPagesAreNoticedAndMayBeWrittenAnew) {
  PageFile file(options());
  Block block = pages_of(file, 4, 1);
  write_now(file, 0, block);
  const int again = open_again(folder());
  ASSERT_GE(again, 0);
  ASSERT_EQ(::pwrite(again, "x", 1, 2 * kFileUnit + 17), 1);
  ::close(again);
  const std::string message = error_of(ErrorCode::corrupt, [&] { read_now(file, 0, 4); });
  EXPECT_NE(message.find(folder().string() + ": page 2 of the scratch file of residuals"), std::string::npos)
      << message;
  EXPECT_NE(message.find("another disk"), std::string::npos) << message;
  EXPECT_TRUE(equal(read_now(file, 3, 1), [&] {
    Block last(kFileUnit, MemoryUse::staging);
    std::memcpy(last.data(), block.data() + 3 * kFileUnit, kFileUnit);
    return last;
  }()));
  write_now(file, 0, block);
  EXPECT_TRUE(equal(read_now(file, 0, 4), block));
}

TEST_P(PageFileTest, AFileThatLostItsEndIsNoticed) {
  PageFile file(options());
  Block block = pages_of(file, 4, 1);
  write_now(file, 0, block);
  const int again = open_again(folder());
  ASSERT_EQ(::ftruncate(again, 2 * kFileUnit), 0);
  ::close(again);
  error_of(ErrorCode::corrupt, [&] { read_now(file, 1, 3); });
  read_now(file, 0, 2);
}

TEST_P(PageFileTest, AChildLeavesTheFileToItsParent) {
  auto file = std::make_unique<PageFile>(options());
  Block block = pages_of(*file, 8, 1);
  std::vector<PageFile::Ticket> tickets;
  for (PageFile::Page page = 0; page < 8; ++page) {
    tickets.push_back(file->write(8 * page, span_of(block)));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    int failures = open_again(folder()) >= 0 ? 1 : 0;
    try {
      write_now(*file, 0, block);
      failures += 2;
    } catch (const Error& error) {
      failures += error.code() == ErrorCode::unsupported ? 0 : 4;
    }
    file.reset();
    ::_exit(failures);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const PageFile::Ticket& ticket : tickets) {
    file->wait(ticket);
  }
  EXPECT_TRUE(equal(read_now(*file, 56, 8), block));
}

TEST_P(PageFileTest, AKilledProcessLeavesNothing) {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    PageFile file(options());
    Block block = pages_of(file, 8, 1);
    for (PageFile::Page page = 0;; page = (page + 8) % 800) {
      write_now(file, page, block);
      if (page == 80 && ::write(ready[1], "x", 1) != 1) {
        ::_exit(1);
      }
    }
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
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
  ScratchFolder folder_;
  bool mounted_;
};

std::string g_logged;
std::string logged_while(const std::function<void()>& body) {
  g_logged.clear();
  set_log_sink([](LogLevel /*level*/, std::string_view message) { g_logged += message; });
  body();
  set_log_sink(nullptr);
  return g_logged;
}

TEST_P(PageFileTest, AFullDiskIsAnErrorThatNamesTheFolder) {
  const Mounted disk("tmpfs", "size=192k");
  if (!disk.done()) {
    GTEST_SKIP() << "this user may not mount a small file system";
  }
  PageFileOptions small = options();
  small.folder = disk.path();
  const std::string logged = logged_while([&] {
    PageFile file(small);
    EXPECT_FALSE(file.statistics().bypasses_cache);
    Block block = pages_of(file, 32, 1);
    write_now(file, 0, block);
    const std::string message =
        error_of(ErrorCode::invalid_argument, [&] { file.wait(file.write(40, span_of(block))); });
    EXPECT_NE(message.find(disk.path().string()), std::string::npos) << message;
    EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
    EXPECT_NE(message.find("make room there"), std::string::npos) << message;
    EXPECT_TRUE(equal(read_now(file, 0, 32), block));
    error_of(ErrorCode::internal, [&] { read_now(file, 40, 32); });  // it has no content
    EXPECT_NE(error_of(ErrorCode::invalid_argument, [&] { file.reserve(200); }).find("no room for 800KiB"),
              std::string::npos);
  });
  EXPECT_NE(logged.find("lies in memory"), std::string::npos) << logged;
}

TEST_P(PageFileTest, AFileSystemWithoutDirectRequestsIsUsedAndNamed) {
  const Mounted disk("ramfs", "");
  if (!disk.done()) {
    GTEST_SKIP() << "this user may not mount a file system";
  }
  PageFileOptions cached = options();
  cached.folder = disk.path();
  const std::string logged = logged_while([&] {
    PageFile file(cached);
    EXPECT_FALSE(file.statistics().bypasses_cache);
    Block block = pages_of(file, 5, 1);
    write_now(file, 3, block);
    EXPECT_TRUE(equal(read_now(file, 3, 5), block));
  });
  EXPECT_NE(logged.find("refuses O_DIRECT, so the page cache takes memory"), std::string::npos) << logged;
}

TEST_P(PageFileTest, ALimitOfFileSizesIsAnErrorAndNoSignal) {
  PageFile file(options());
  Block block = pages_of(file, 4, 1);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit low { 16 * kFileUnit, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  write_now(file, 12, block);
  const std::string message = error_of(ErrorCode::invalid_argument, [&] { write_now(file, 13, block); });
  error_of(ErrorCode::invalid_argument, [&] { file.reserve(17); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(message.find("ulimit -f"), std::string::npos) << message;
  write_now(file, 13, block);
}

TEST_P(PageFileTest, AFolderThatIsNotThereIsNamed) {
  PageFileOptions nowhere = options();
  nowhere.folder /= "nowhere";
  const std::string message = error_of(ErrorCode::invalid_argument, [&] { PageFile file(nowhere); });
  EXPECT_NE(message.find(nowhere.folder.string() + ": no scratch file for residuals"), std::string::npos) << message;
  EXPECT_NE(message.find("name a folder that exists"), std::string::npos) << message;
}

TEST_P(PageFileTest, TheEnvironmentNamesTheBackend) {
  PageFileOptions open = options();
  open.backend = FileBackend::automatic;
  ::setenv("GRADWIRE_FILE_IO", std::string(to_string(GetParam())).c_str(), 1);
  EXPECT_EQ(PageFile(open).statistics().backend, GetParam());
  ::setenv("GRADWIRE_FILE_IO", "dma", 1);
  error_of(ErrorCode::invalid_argument, [&] { PageFile file(open); });
  ::unsetenv("GRADWIRE_FILE_IO");
  EXPECT_NE(PageFile(open).statistics().backend, FileBackend::automatic);
}

// Hands requests on, and changes how some of them end.
class Tampering final : public FileRequests {
 public:
  using Change = std::function<void(const FileRequest& request, FileResult& result)>;
  Tampering(std::unique_ptr<FileRequests> below, Change change)
      : below_(std::move(below)), change_(std::move(change)) {}

  bool begin(const FileRequest& request) override {
    requests_[request.slot] = request;
    return below_->begin(request);
  }
  void collect(std::vector<FileResult>& ended, bool waits) override {
    const std::size_t before = ended.size();
    below_->collect(ended, waits);
    for (std::size_t i = before; i < ended.size(); ++i) {
      change_(requests_.at(ended[i].slot), ended[i]);
    }
  }

 private:
  std::unique_ptr<FileRequests> below_;
  Change change_;
  std::map<std::uint32_t, FileRequest> requests_;
};

MakeFileRequests tampering(Tampering::Change change) {
  return [change = std::move(change)](int descriptor, std::uint32_t in_flight) {
    return std::make_unique<Tampering>(make_file_threads(descriptor, in_flight), change);
  };
}

TEST(PageFileErrors, AReadThatFailsIsNamedAndMayBeRepeated) {
  const ScratchFolder folder;
  bool broken = true;
  PageFile file({.folder = folder.path(), .holds = "rows"}, tampering([&](const FileRequest& what, FileResult& result) {
                  result.bytes = broken && !what.writes ? -EIO : result.bytes;
                }));
  Block block = pages_of(file, 2, 1);
  write_now(file, 7, block);
  const std::string message = error_of(ErrorCode::invalid_argument, [&] { read_now(file, 7, 2); });
  EXPECT_NE(message.find(folder.path().string() + ": page 7 of the scratch file of rows cannot be read"),
            std::string::npos)
      << message;
  broken = false;
  EXPECT_TRUE(equal(read_now(file, 7, 2), block));
}

TEST(PageFileErrors, WhatTheSystemLeftOutIsMadeAfterwards) {
  const ScratchFolder folder;
  int number = 0;
  PageFile file({.folder = folder.path()}, tampering([&](const FileRequest& what, FileResult& result) {
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

TEST(PageFileErrors, RequestsThatTheSystemDoesNotTakeAreMadeByTheWaiter) {
  struct Refuses final : FileRequests {
    bool begin(const FileRequest& /*request*/) override { return false; }
    void collect(std::vector<FileResult>& /*ended*/, bool /*waits*/) override {}
  };
  const ScratchFolder folder;
  PageFile file({.folder = folder.path()}, [](int, std::uint32_t) { return std::make_unique<Refuses>(); });
  Block block = pages_of(file, 3, 1);
  write_now(file, 0, block);
  EXPECT_TRUE(equal(read_now(file, 0, 3), block));
}

TEST(PageFileErrors, ARequestIsWaitedForOnce) {
  const ScratchFolder folder;
  PageFile file({.folder = folder.path()});
  Block block = pages_of(file, 1, 1);
  const PageFile::Ticket ticket = file.write(0, span_of(block));
  file.wait(ticket);
  error_of(ErrorCode::internal, [&] { file.wait(ticket); });
  file.wait({});
}

}  // namespace
}  // namespace gradwire::memory
