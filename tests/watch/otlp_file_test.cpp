// Tests files of OTLP's lines: their content, their size, and their errors.
#include "watch/otlp_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "gradwire/gradwire.hpp"
#include "observe/watching.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/watch/five_steps.hpp"
#include "tests/watch/forked_child.hpp"
#include "tests/watch/otlp_reading.hpp"

namespace gradwire::watch {
namespace {

using gradwire::test::read_text;
using gradwire::test::ScratchFolder;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::string> lines_in(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  std::istringstream text(read_text(file));
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Expects the content of the textfile of the same time. Both report the reader's CPU time as of the same round.
void expect_same(const std::string& line, const std::string& text) {
  const OtlpLine read = read_otlp(line);
  std::string rank;
  std::string part;
  std::string job;
  for (const auto& [name, value] : read.resource) {
    rank = name == "gradwire.rank" ? value : rank;
    part = name == "gradwire.part" ? value : part;
    job = name == "gradwire.job" ? value : job;
  }
  std::vector<double> sums;
  EXPECT_EQ(without_sums(to_text(read.families, labels_of_rank(part, std::stoi(rank), job))),
            without_sums(text, &sums));
  EXPECT_EQ(read.sums, sums);
}

struct Files {
  explicit Files(std::filesystem::path in, std::uint64_t most_bytes = 1 << 20) : folder(std::move(in)) {
    const auto warn = [this](const std::string& text) { told.push_back(text); };
    sink.subscribe(std::make_unique<OtlpWriter>(OtlpOptions{
        .directory = folder, .interval = std::chrono::nanoseconds(100), .most_bytes = most_bytes, .warn = warn}));
    sink.subscribe(std::make_unique<TextfileWriter>(TextfileOptions{
        .directory = folder, .interval = std::chrono::nanoseconds(100), .warn = [](const std::string&) {}}));
  }
  void take(std::uint64_t now, bool last = false) {
    const std::vector<observe::Event> events(now % 7 + 1,
                                             {.bytes = now, .duration = 1000, .kind = observe::EventKind::encode});
    const std::vector<observe::Stretch> stretches{{1, events}};
    sink.take({.scale = {.nanoseconds = now, .nanoseconds_per_tick = 0.31}, .stretches = stretches, .last = last});
  }
  [[nodiscard]] std::filesystem::path file() const { return folder / otlp_file_name("library", 2); }

  std::filesystem::path folder;
  std::vector<std::string> told;
  TotalsSink sink{{.rank = [] { return std::optional(2); }}};
};

TEST(OtlpWriter, AddsALineWhenItIsTimeAndAtTheEnd) {
  const ScratchFolder folder;
  Files files(folder.path() / "made");
  std::size_t lines = 0;
  for (const std::uint64_t now : {1000, 1099, 1100, 1201, 1202}) {
    files.take(now, now == 1202);
    lines += now == 1099 ? 0 : 1;
    const std::vector<std::string> all = lines_in(files.file());
    ASSERT_THAT(all, SizeIs(lines)) << now;
    if (now != 1099) {
      expect_same(all.back(), read_text(files.folder / file_name("library", 2)));
    }
  }
  EXPECT_TRUE(files.told.empty());
  struct stat file {};
  ASSERT_EQ(::stat(files.file().c_str(), &file), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(file.st_mode & 0777U, 0644U & ~mask) << "a collector is another user";
}

// A file of an earlier job, which may end in the middle of a line, is renamed and not lost.
TEST(OtlpWriter, AnEarlierJobsFileIsRenamed) {
  const ScratchFolder folder;
  Files files(folder.path());
  write_whole(folder.path(), otlp_file_name("library", 2), "{\"half");
  files.take(1000);
  files.take(1200);
  EXPECT_THAT(lines_in(files.file()), SizeIs(2));
  EXPECT_EQ(read_text(files.file().string() + ".1"), "{\"half");
}

TEST(OtlpWriter, AFileHasABound) {
  const ScratchFolder folder;
  constexpr std::uint64_t kMost = 50'000;
  Files files(folder.path(), kMost);
  for (std::uint64_t i = 1; i < 100; ++i) {
    files.take(1000 * i);
    EXPECT_LE(std::filesystem::file_size(files.file()), kMost);
    for (const std::string& line : lines_in(files.file())) {
      ASSERT_TRUE(nlohmann::json::accept(line));
    }
  }
  EXPECT_GT(std::filesystem::file_size(files.file().string() + ".1"), kMost / 2);
  EXPECT_LE(std::filesystem::file_size(files.file().string() + ".1"), kMost);
  EXPECT_TRUE(files.told.empty());
}

TEST(OtlpWriter, WhatCannotBeWrittenIsToldOnceAndTriedAgain) {
  const ScratchFolder folder;
  write_whole(folder.path(), "in-the-way", "a file");
  Files files(folder.path() / "in-the-way");
  files.take(1000);
  files.take(2000);
  ASSERT_THAT(files.told, SizeIs(1));
  EXPECT_THAT(files.told[0], HasSubstr("in-the-way"));
  EXPECT_THAT(files.told[0], HasSubstr("GRADWIRE_METRICS"));
  std::filesystem::remove(folder.path() / "in-the-way");
  files.take(3000);
  EXPECT_THAT(lines_in(files.file()), SizeIs(1));
}

// A pipe without a reader would block the thread forever; a link could point anywhere.
TEST(OtlpWriter, WhatIsNoFileIsRefused) {
  for (const bool pipe : {true, false}) {
    const ScratchFolder folder;
    Files files(folder.path());
    if (pipe) {
      ASSERT_EQ(::mkfifo(files.file().c_str(), 0600), 0);
    } else {
      std::filesystem::create_symlink("elsewhere", files.file());
    }
    files.take(1000);
    files.take(2000);
    ASSERT_THAT(files.told, SizeIs(1));
    EXPECT_THAT(files.told[0], HasSubstr(files.file().string()));
    EXPECT_FALSE(exists(folder.path() / "elsewhere"));
  }
}

// The file may be another name of someone's file. Mutation tried: the number of its names is not checked.
TEST(OtlpWriter, AFileWithTwoNamesIsNotAppendedTo) {
  const gradwire::test::ScratchFolder folder;
  std::ofstream(folder.file("victim")) << "mine";
  std::filesystem::create_hard_link(folder.file("victim"), folder.file("metrics"));
  EXPECT_THROW(append_line(folder.file("metrics"), "line\n"), Error);
  EXPECT_EQ(gradwire::test::read_text(folder.file("victim")), "mine");
  append_line(folder.file("own"), "line\n");
  EXPECT_EQ(gradwire::test::read_text(folder.file("own")), "line\n");
}

TEST(OtlpWriter, ALinkToAFileIsRefusedAndStays) {
  const ScratchFolder folder;
  write_whole(folder.path(), "elsewhere", "{\"a\":1}\n");
  Files files(folder.path() / "metrics");
  std::filesystem::create_directories(files.folder);
  std::filesystem::create_symlink("../elsewhere", files.file());
  files.take(1000);
  files.take(2000);
  ASSERT_THAT(files.told, SizeIs(1));
  EXPECT_THAT(files.told[0], HasSubstr(files.file().string()));
  EXPECT_TRUE(std::filesystem::is_symlink(files.file()));
  EXPECT_FALSE(exists(std::filesystem::path(files.file().string() + ".1")));
  EXPECT_EQ(read_text(folder.path() / "elsewhere"), "{\"a\":1}\n");
}

// The disk has room for two and a half lines.
TEST(OtlpWriter, HalfALineIsTakenBack) {
  const ScratchFolder folder;
  const std::string line = std::string(999, 'x') + "\n";
  EXPECT_EQ(status_of(start_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{2500, 2500};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              append_line(folder.path() / "a", line);
              append_line(folder.path() / "a", line);
              try {
                append_line(folder.path() / "a", line);
              } catch (const Error& error) {
                std::_Exit(std::string(error.what()).find("a: File too large") != std::string::npos ? 0 : 2);
              }
              std::_Exit(1);
            })),
            0);
  EXPECT_EQ(read_text(folder.path() / "a"), line + line);
}

TEST(OtlpOfAJob, SaysWhatTheTextfilesSay) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const ScratchFolder folder;
  constexpr int kRanks = 4;
  ASSERT_EQ(status_of(start_child([&] {
              ::setenv("GRADWIRE_JOB", "tried", 1);
              ::setenv("GRADWIRE_METRICS", ("otlp:" + folder.file("otlp") + ",file:" + folder.file("text")).c_str(), 1);
              run_five_steps(kRanks);
              std::exit(0);
            })),
            0);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<std::string> lines = lines_in(folder.path() / "otlp" / otlp_file_name("library", rank, "tried"));
    ASSERT_FALSE(lines.empty());
    for (const std::string& line : lines) {
      EXPECT_TRUE(nlohmann::json::accept(line));
    }
    const std::string text = read_text(folder.path() / "text" / file_name("library", rank, "tried"));
    EXPECT_THAT(text, HasSubstr("gradwire_job_ended{part=\"library\",rank=\"" + std::to_string(rank) +
                                "\",gradwire_job=\"tried\"} 1"));
    EXPECT_THAT(text, HasSubstr("gradwire_steps_total{part=\"library\",rank=\"" + std::to_string(rank) +
                                "\",gradwire_job=\"tried\"} 5"));
    expect_same(lines.back(), text);
  }
}

}  // namespace
}  // namespace gradwire::watch
