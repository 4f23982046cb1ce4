// Tests files of metrics: they are complete at any time, whatever happens to the process or the disk.
#include "watch/textfile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/watch/forked_child.hpp"
#include "watch/host.hpp"

namespace gradwire::watch {
namespace {

using gradwire::test::read_text;
using gradwire::test::ScratchFolder;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(RankFile, IsKnownByItsName) {
  EXPECT_TRUE(is_rank_file(rank_file_name("mpi", 3, "resnet", ".prom"), ".prom"));
  EXPECT_TRUE(is_rank_file(rank_file_name("library", 0, "", ".history"), ".history"));
  for (const char* other : {"gradwire-mpi-rank-3.history", "gradwire-mpi.prom", "node-mpi-rank-3.prom",
                            ".gradwire-mpi-rank-3.prom.7.new", ""}) {
    EXPECT_FALSE(is_rank_file(other, ".prom")) << other;
  }
}

TEST(WriteWhole, ReplacesAndLeavesNothingElse) {
  const ScratchFolder folder;
  write_whole(folder.path(), "a.prom", "one");
  EXPECT_EQ(std::filesystem::status(folder.file("a.prom")).permissions(), std::filesystem::perms(0600));
  write_whole(folder.path(), "a.prom", "two", Readers::everybody);
  EXPECT_EQ(read_text(folder.path() / "a.prom"), "two");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a.prom"));
  struct stat file {};
  ASSERT_EQ(::stat(folder.file("a.prom").c_str(), &file), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(file.st_mode & 0777U, 0644U & ~mask) << "node_exporter is another user";
}

TEST(WriteWhole, ADirectoryThatIsNotThereIsNamed) {
  const Error error = gradwire::test::error_of([] { write_whole("/nonexistent/folder", "a.prom", "text"); });
  EXPECT_THAT(error.what(), HasSubstr("/nonexistent/folder"));
  EXPECT_THAT(error.what(), HasSubstr("No such file"));
}

// If the disk becomes full in the middle of a file, the old file stays.
TEST(WriteWhole, AHalfThatWasWrittenIsTakenBack) {
  const ScratchFolder folder;
  write_whole(folder.path(), "a.prom", "old");
  const pid_t child = start_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_whole(folder.path(), "a.prom", std::string(1000, 'x'));
    } catch (const Error& error) {
      std::_Exit(std::string(error.what()).find("a.prom: File too large") != std::string::npos ? 0 : 2);
    }
    std::_Exit(1);
  });
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(read_text(folder.path() / "a.prom"), "old");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a.prom"));
}

TEST(WriteWhole, AKilledWriterLeavesAWholeFile) {
  const ScratchFolder folder;
  int seen = 0;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = start_child([&] {
      for (int i = 0;; ++i) {
        write_whole(folder.path(), "a.prom", std::string(100'000 + static_cast<std::size_t>(i % 7), 'x') + "\n# EOF\n");
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + 733 * round));
    ::kill(child, SIGKILL);
    EXPECT_EQ(status_of(child), 128 + SIGKILL);
    const std::string text = read_text(folder.path() / "a.prom");
    if (!text.empty()) {
      EXPECT_THAT(text.substr(text.size() - std::min<std::size_t>(10, text.size())), EndsWith("\n# EOF\n"));
      ++seen;
    }
  }
  EXPECT_GT(seen, 10);
}

std::vector<std::string> g_told;

// A sink that writes textfiles.
class TextfileSink {
 public:
  TextfileSink(observe::WatchedProcess of, const TextfileOptions& options) : sink_(std::move(of)) {
    sink_.subscribe(std::make_unique<TextfileWriter>(options));
  }
  void take(const observe::Round& round) { sink_.take(round); }

 private:
  TotalsSink sink_;
};

TextfileOptions told(const std::filesystem::path& folder) {
  g_told.clear();
  return {.directory = folder, .interval = std::chrono::nanoseconds(0), .warn = [](const std::string& text) {
            g_told.push_back(text);
          }};
}

observe::Round round_at(std::uint64_t now, bool last = false) {
  return {.scale = {.nanoseconds = now}, .recorded = 7, .last = last};
}

TEST(TextfileSink, WritesWhenItIsTimeAndAtTheEnd) {
  const ScratchFolder folder;
  TextfileOptions options = told(folder.path() / "made");
  options.interval = std::chrono::nanoseconds(100);
  TextfileSink sink({.part = "mpi", .rank = [] { return std::optional(3); }}, options);
  const auto file = folder.path() / "made" / "gradwire-mpi-rank-3.prom";
  sink.take(round_at(1000));
  EXPECT_THAT(read_text(file), HasSubstr("gradwire_events_total{part=\"mpi\",rank=\"3\"} 7\n"));
  std::filesystem::remove(file);
  sink.take(round_at(1099));
  EXPECT_FALSE(exists(file));
  sink.take(round_at(1100));
  EXPECT_THAT(read_text(file), HasSubstr("gradwire_job_ended{part=\"mpi\",rank=\"3\"} 0\n"));
  sink.take(round_at(1101, true));
  EXPECT_THAT(read_text(file), HasSubstr("gradwire_job_ended{part=\"mpi\",rank=\"3\"} 1\n"));
  EXPECT_TRUE(g_told.empty());
}

TEST(TextfileSink, WaitsUntilItKnowsItsRank) {
  const ScratchFolder folder;
  std::optional<int> rank;
  TextfileSink sink({.rank = [&] { return rank; }}, told(folder.path()));
  sink.take(round_at(1));
  EXPECT_TRUE(names_in(folder.path()).empty());
  rank = 5;
  sink.take(round_at(2));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("gradwire-library-rank-5.prom"));
}

TEST(TextfileSink, WhatCannotBeWrittenIsToldOnceAndTriedAgain) {
  const ScratchFolder folder;
  write_whole(folder.path(), "in-the-way", "a file");
  TextfileSink sink({.rank = [] { return std::optional(0); }}, told(folder.path() / "in-the-way"));
  sink.take(round_at(1));
  sink.take(round_at(2));
  ASSERT_EQ(g_told.size(), 1U);
  EXPECT_THAT(g_told[0], HasSubstr("in-the-way"));
  EXPECT_THAT(g_told[0], HasSubstr("the job goes on"));
  std::filesystem::remove(folder.path() / "in-the-way");
  sink.take(round_at(3));
  EXPECT_THAT(names_in(folder.path() / "in-the-way"), ElementsAre("gradwire-library-rank-0.prom"));
}

// Mutation tried: the names of files do not contain the job.
TEST(TextfileSink, TwoJobsInOneDirectoryKeepTheirFiles) {
  const ScratchFolder folder;
  TextfileSink first({.rank = [] { return std::optional(0); }, .job = "a"}, told(folder.path()));
  TextfileSink second({.rank = [] { return std::optional(0); }, .job = "b"}, told(folder.path()));
  first.take(round_at(1));
  second.take(round_at(1));
  first.take(round_at(2, true));
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("gradwire-library-rank-0-job-a.prom", "gradwire-library-rank-0-job-b.prom"));
  EXPECT_THAT(read_text(folder.path() / file_name("library", 0, "a")),
              HasSubstr("gradwire_job_ended{part=\"library\",rank=\"0\",gradwire_job=\"a\"} 1\n"));
  EXPECT_THAT(read_text(folder.path() / file_name("library", 0, "b")),
              HasSubstr("gradwire_job_ended{part=\"library\",rank=\"0\",gradwire_job=\"b\"} 0\n"));
}

// Mutations tried: a file is removed whatever its age, whatever its host, and whatever its name.
TEST(TextfileSink, AJobRemovesTextfilesOfADayAgoAndNothingElse) {
  const ScratchFolder folder;
  const auto write = [&](const std::string& name, const std::string& host, int hours) {
    const std::string info = R"(gradwire_info{part="mpi",rank="0",version="1",transport="",clock="",host=")" + host;
    write_whole(folder.path(), name, "# HELP gradwire_info Version.\n" + info + "\"} 1\n# EOF\n");
    std::filesystem::last_write_time(folder.path() / name,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  const std::string here = host_name();
  write("gradwire-mpi-rank-0-job-old.prom", here, 25);
  write(".gradwire-mpi-rank-1-job-old.prom.4711.new", here, 25);
  write("gradwire-mpi-rank-0-job-young.prom", here, 23);
  write("gradwire-mpi-rank-0-job-elsewhere.prom", here + "2", 25);
  write("gradwire-mpi-rank-0.prom", "", 25);
  write("node.prom", here, 25);
  for (const char* kind : {".history", ".events", ".otlp.jsonl", ".otlp.jsonl.1"}) {
    write(std::string("gradwire-mpi-rank-0-job-old") + kind, here, 25);
  }
  write("report.html", here, 25);
  std::filesystem::create_symlink("node.prom", folder.path() / "gradwire-mpi-rank-9-job-link.prom");
  TextfileSink sink({.rank = [] { return std::optional(0); }, .job = "new"}, told(folder.path()));
  sink.take(round_at(1));
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("gradwire-library-rank-0-job-new.prom", "gradwire-mpi-rank-0-job-elsewhere.prom",
                          "gradwire-mpi-rank-0-job-old.events", "gradwire-mpi-rank-0-job-old.history",
                          "gradwire-mpi-rank-0-job-old.otlp.jsonl", "gradwire-mpi-rank-0-job-old.otlp.jsonl.1",
                          "gradwire-mpi-rank-0-job-young.prom", "gradwire-mpi-rank-0.prom",
                          "gradwire-mpi-rank-9-job-link.prom", "node.prom", "report.html"));
}

}  // namespace
}  // namespace gradwire::watch
