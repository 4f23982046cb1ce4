// The scratch file of pages, by io_uring and by threads: contents against a model, its privacy, and who may use it.
#include "memory/page_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "file_pages.hpp"
#include "gradwire/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_file_access.hpp"

namespace gradwire::memory {
namespace {

using test::error_of;
using test::open_scratch_files;

using PageFileTest = OverPageFiles;

INSTANTIATE_TEST_SUITE_P(Backends, PageFileTest, kFileBackends, backend_name);

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
  const std::vector<int> again = open_scratch_files(folder());
  ASSERT_EQ(again.size(), 1U);
  struct stat status {};
  ASSERT_EQ(::fstat(again[0], &status), 0);
  ::close(again[0]);
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
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
    int failures = open_scratch_files(folder()).empty() ? 0 : 1;
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

TEST_P(PageFileTest, TheEnvironmentNamesTheBackend) {
  PageFileOptions open = options();
  open.backend = FileBackend::automatic;
  ::setenv("GRADWIRE_FILE_IO", std::string(to_string(GetParam())).c_str(), 1);
  EXPECT_EQ(PageFile(open).statistics().backend, GetParam());
  ::setenv("GRADWIRE_FILE_IO", "dma", 1);
  EXPECT_EQ(error_of([&] { PageFile file(open); }).code(), ErrorCode::invalid_argument);
  ::unsetenv("GRADWIRE_FILE_IO");
  EXPECT_NE(PageFile(open).statistics().backend, FileBackend::automatic);
}

TEST(PageFile, ARequestIsWaitedForOnce) {
  const test::ScratchFolder folder;
  PageFile file({.folder = folder.path()});
  Block block = pages_of(file, 1, 1);
  const PageFile::Ticket ticket = file.write(0, span_of(block));
  file.wait(ticket);
  EXPECT_EQ(error_of([&] { file.wait(ticket); }).code(), ErrorCode::internal);
  file.wait({});
}

}  // namespace
}  // namespace gradwire::memory
