// Tests the files of histories: when they are written, that problems are reported once, a job of ranks, and a killed
// job.
#include "watch/history_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill() and sigaction() are POSIX
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/report_place.hpp"
#include "gradwire/gradwire.hpp"
#include "observe/watching.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch {
namespace {

using gradwire::test::read_text;
using gradwire::test::ScratchFolder;
using nlohmann::json;
using ::testing::HasSubstr;

#if defined(__SANITIZE_THREAD__)
constexpr bool kForksWithoutThreads = true;
#else
constexpr bool kForksWithoutThreads = false;
#endif

json history_in(const std::filesystem::path& folder, int rank, const std::string& job = "") {
  return json::parse(read_text(folder / history_name("library", rank, job)), nullptr, false);
}

observe::Round round_after(double seconds, bool last = false) {
  return {.scale = {.nanoseconds = static_cast<std::uint64_t>(1e9 + seconds * 1e9)}, .last = last};
}

struct Told {
  std::vector<std::string> warnings;
  std::vector<std::string> lines;
};

HistoryOptions options_of(const std::filesystem::path& folder, Told& told) {
  return {.directory = folder,
          .head = head_of_process("library"),
          .warn = [&told](const std::string& text) { told.warnings.push_back(text); },
          .tell = [&told](const std::string& text) { told.lines.push_back(text); }};
}

// A sink that writes histories.
class HistorySink {
 public:
  explicit HistorySink(HistoryOptions options, int rank = 0) : sink_({.rank = [rank] { return std::optional(rank); }}) {
    sink_.subscribe(std::make_unique<HistoryWriter>(std::move(options)));
  }
  void take(const observe::Round& round) { sink_.take(round); }

 private:
  TotalsSink sink_;
};

TEST(ReportPlace, AFileOfJsonOrADirectory) {
  EXPECT_EQ(report_place("a/r.json").calls, "a/r.json");
  EXPECT_EQ(report_place("r-%p.json").directory, std::nullopt);
  EXPECT_EQ(report_place("a/r").directory, "a/r");
  EXPECT_EQ(report_place("a/r").calls, "a/r/calls-%p.json");
  EXPECT_EQ(report_place("a/").calls, "a/calls-%p.json");
}

TEST(HistorySink, WritesOftenAtFirstAndAtTheEnd) {
  const ScratchFolder folder;
  Told told;
  HistorySink sink(options_of(folder.path() / "made", told));
  const auto file = folder.path() / "made" / history_name("library", 0);
  sink.take(round_after(0));
  ASSERT_EQ(history_in(folder.path() / "made", 0).at("ended"), false);
  std::filesystem::remove(file);
  sink.take(round_after(0.9));
  EXPECT_FALSE(exists(file));
  sink.take(round_after(1));
  EXPECT_TRUE(exists(file));
  sink.take(round_after(100));
  std::filesystem::remove(file);
  sink.take(round_after(104));
  EXPECT_FALSE(exists(file)) << "writes become rarer the longer a job runs";
  sink.take(round_after(105));
  EXPECT_TRUE(exists(file));
  sink.take(round_after(105.1, true));
  const json last = history_in(folder.path() / "made", 0);
  EXPECT_EQ(last.at("ended"), true);
  EXPECT_NEAR(last.at("written").get<double>() - last.at("started").get<double>(), 105.1, 1e-6);
  EXPECT_NEAR(last.at("samples").at("time").back().get<double>(), 105.1, 1e-6);
  ASSERT_EQ(told.lines.size(), 1U);
  EXPECT_THAT(told.lines[0], HasSubstr("gradwire report " + (folder.path() / "made").string()));
  EXPECT_TRUE(told.warnings.empty());
}

// A command line may contain secret tokens. Mutations tried: the file gets the mode of metrics files; an existing file
// keeps its mode.
TEST(HistorySink, IsForItsOwnerAlone) {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.path() / history_name("library", 0);
  std::ofstream(file) << "of an older version";
  const mode_t mask = ::umask(0);
  std::filesystem::permissions(file, std::filesystem::perms(0644));
  Told told;
  HistorySink sink(options_of(folder.path(), told));
  sink.take(round_after(0, true));
  ::umask(mask);
  EXPECT_EQ(static_cast<unsigned>(std::filesystem::status(file).permissions()), 0600U);
  EXPECT_EQ(history_in(folder.path(), 0).value("format", ""), "gradwire history");
}

TEST(HistorySink, WhatCannotBeWrittenIsToldOnceAndTriedAgain) {
  const ScratchFolder folder;
  write_whole(folder.path(), "in-the-way", "a file");
  Told told;
  HistorySink sink(options_of(folder.path() / "in-the-way", told), 1);
  sink.take(round_after(0));
  sink.take(round_after(2));
  ASSERT_EQ(told.warnings.size(), 1U);
  EXPECT_THAT(told.warnings[0], HasSubstr("in-the-way"));
  EXPECT_THAT(told.warnings[0], HasSubstr("GRADWIRE_REPORT"));
  std::filesystem::remove(folder.path() / "in-the-way");
  sink.take(round_after(4, true));
  EXPECT_EQ(history_in(folder.path() / "in-the-way", 1).at("rank"), 1);
  EXPECT_TRUE(told.lines.empty()) << "only rank 0 reports it";
}

TEST(HistorySink, RemovesWhatAKilledProcessLeft) {
  const ScratchFolder folder;
  const auto left = folder.path() / ("." + history_name("library", 1) + ".4711.new");
  const auto young = folder.path() / ("." + history_name("library", 1) + ".4712.new");
  const auto anothers = folder.path() / ("." + history_name("library", 11) + ".4713.new");
  for (const auto& file : {left, young, anothers}) {
    write_whole(folder.path(), file.filename().string(), "{");
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(file == young ? 1 : 61));
  }
  Told told;
  HistorySink sink(options_of(folder.path(), told), 1);
  sink.take(round_after(0));
  EXPECT_FALSE(exists(left));
  EXPECT_TRUE(exists(young)) << "the file's process is alive";
  EXPECT_TRUE(exists(anothers));
}

TEST(HistorySink, AProcessSaysWhatItIs) {
  ::setenv("GRADWIRE_CODEC", "int4", 1);
  const HistoryHead head = head_of_process("mpi");
  ::unsetenv("GRADWIRE_CODEC");
  EXPECT_EQ(head.part, "mpi");
  EXPECT_FALSE(head.host.empty());
  ASSERT_FALSE(head.command.empty());
  EXPECT_THAT(head.command[0], HasSubstr("export_textfile_test"));
  EXPECT_THAT(head.environment, ::testing::Contains(std::pair<std::string, std::string>("GRADWIRE_CODEC", "int4")));
  EXPECT_GT(head.started, 1.6e9);
}

// Runs a job of four ranks in a child, as the environment starts it: negative `steps` run until it is killed.
void run_job(const std::string& report, int steps, const Policy& policy = Policy::uniform("int8")) {
  ::setenv("GRADWIRE_JOB", "tried", 1);
  ::setenv("GRADWIRE_REPORT", report.c_str(), 1);
  ::setenv("GRADWIRE_LOG", "off", 1);
  gradwire::test::run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(20'000, 1.0F);
    Session session(transport, policy);
    const TensorId id = session.add("values", {values.data(), values.size(), DType::f32});
    for (int step = 0; step != steps; ++step) {
      session.ready(id);
      session.finish();
      session.note("loss", 1.0 / (step + 1));
    }
  });
}

TEST(HistoryOfAJob, HasWhatEachRankDid) {
  if (kForksWithoutThreads) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    run_job(folder.file("report"), 6);
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  for (int rank = 0; rank < 4; ++rank) {
    const json history = history_in(folder.path() / "report", rank, "tried");
    ASSERT_FALSE(history.is_discarded());
    EXPECT_EQ(history.at("world"), 4);
    EXPECT_EQ(history.at("ended"), true);
    const json& samples = history.at("samples");
    EXPECT_EQ(samples.at("steps").back(), 6);
    EXPECT_EQ(samples.at("timed_steps").back(), 5);
    EXPECT_GT(samples.at("step_seconds").back(), 0);
    EXPECT_EQ(history.at("groups").at(0).at("codec"), "int8");
    EXPECT_EQ(history.at("gauges").at("gradwire_note loss").back(), 1.0 / 6);
    EXPECT_EQ(history.at("groups").at(0).at("bytes_sent").back(), samples.at("message_bytes").back());
    EXPECT_LE(samples.at("sending_seconds").back(), samples.at("time").back())
        << "messages in flight at the same time count once";
  }
}

// Mutation tried: the codec in use is the group's own.
TEST(HistoryOfAJob, NamesTheCodecOfAWarmUp) {
  if (kForksWithoutThreads) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  for (const int steps : {3, 6}) {
    const ScratchFolder folder;
    const pid_t child = ::fork();
    if (child == 0) {
      run_job(folder.path().string(), steps,
              Policy::parse(
                  "version = 1\n[defaults]\ncodec = \"int8\"\nwarmup = [{ until_step = 5, codec = \"bf16\" }]\n"));
      std::exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    const json history = history_in(folder.path(), 2, "tried");
    const json& group = history.at("groups").at(0);
    EXPECT_EQ(group.at("codec"), "int8");
    EXPECT_EQ(history.at("codecs").at(group.at("in_use").back().get<std::size_t>()),
              steps == 3 ? "bf16 (warm-up)" : "int8");
  }
}

TEST(HistoryOfAJob, OfAKilledOneCanBeRead) {
  if (kForksWithoutThreads) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    run_job(folder.path().string(), -1);
  }
  const auto file = folder.path() / history_name("library", 3, "tried");
  for (int i = 0; i < 1000 && !exists(file); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const json history = history_in(folder.path(), 3, "tried");
  ASSERT_FALSE(history.is_discarded());
  EXPECT_EQ(history.at("ended"), false);
  EXPECT_EQ(history.at("job"), "tried");
}

TEST(HistoryOfAJob, IsNotWrittenWhereAFileIsNamed) {
  if (kForksWithoutThreads) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    run_job(folder.file("report.json"), 3);
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "that file is for a drop-in";
}

}  // namespace
}  // namespace gradwire::watch
