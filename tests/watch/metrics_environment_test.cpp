// Tests jobs that write metrics because the environment asks for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <regex>
#include <thread>

#include "gradwire/session.hpp"
#include "observe/record.hpp"
#include "observe/watching.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/watch/five_steps.hpp"
#include "tests/watch/forked_child.hpp"
#include "watch/event_file.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch {
namespace {

using gradwire::test::read_text;
using gradwire::test::ScratchFolder;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Returns the sum of a metric's samples in a file.
double sum_in(const std::string& text, const std::string& metric) {
  double sum = 0;
  const std::regex line("(^|\n)" + metric + R"((\{[^\n]*\})? (\S+))");
  for (std::sregex_iterator match(text.begin(), text.end(), line), end; match != end; ++match) {
    sum += std::stod((*match)[3]);
  }
  return sum;
}

// A job of four ranks runs as the environment starts it, in a child, since that happens once per process.
TEST(Environment, EveryRankOfAJobWritesItsCounts) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const ScratchFolder folder;
  constexpr int kRanks = 4;
  const pid_t child = start_child([&] {
    ::setenv("GRADWIRE_JOB", "tried", 1);
    ::setenv("GRADWIRE_METRICS", ("file:" + folder.file("metrics")).c_str(), 1);
    ::setenv("GRADWIRE_TRACE", folder.file("trace").c_str(), 1);
    std::string expected;
    for (const SessionStatistics& rank : run_five_steps(kRanks)) {
      expected += std::to_string(rank.all().bytes_sent) + " ";
    }
    write_whole(folder.path(), "expected", expected);
    std::exit(0);  // the job does not stop anything
  });
  ASSERT_EQ(status_of(child), 0);
  std::map<int, std::uint64_t> traced;  // bytes sent
  std::map<std::uint64_t, int> rank_of;
  EXPECT_TRUE(read_event_file(folder.path() / "trace" / "gradwire-library-rank-0.events",
                              {.source = [&](const EventFileSource& source) { rank_of[source.id] = source.rank; },
                               .events =
                                   [&](std::uint32_t /*thread*/, std::span<const observe::Event> events) {
                                     for (const observe::Event& event : events) {
                                       if (event.kind == observe::EventKind::send ||
                                           event.kind == observe::EventKind::all_reduce) {
                                         traced[rank_of.at(event.source)] += event.bytes;
                                       }
                                     }
                                   }}));
  std::istringstream expected(read_text(folder.path() / "expected"));
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string text = read_text(folder.path() / "metrics" / file_name("library", rank, "tried"));
    EXPECT_THAT(text, EndsWith("# EOF\n"));
    double sent = 0;
    expected >> sent;
    EXPECT_EQ(sum_in(text, "gradwire_bytes_sent_total"), sent) << text;
    EXPECT_EQ(static_cast<double>(traced[rank]), sent);
    EXPECT_EQ(sum_in(text, "gradwire_steps_total"), 5);
    EXPECT_EQ(sum_in(text, "gradwire_step_exposed_seconds_count"), 5);
    EXPECT_EQ(sum_in(text, "gradwire_step_seconds_count"), 4);
    EXPECT_EQ(sum_in(text, "gradwire_message_bytes_sum") - 2 * sum_in(text, "gradwire_bytes_sent_total"), 0)
        << "here as many bytes are received as sent";
    EXPECT_EQ(sum_in(text, "gradwire_events_dropped_total"), 0);
    EXPECT_EQ(sum_in(text, "gradwire_job_ended"), 1);
#ifdef GRADWIRE_PROMTOOL
    if (::access(GRADWIRE_PROMTOOL, X_OK) != 0) {
      continue;
    }
    const auto outcome =
        gradwire::test::run_program(std::string(GRADWIRE_PROMTOOL) + " check metrics < " +
                                    (folder.path() / "metrics" / file_name("library", rank, "tried")).string());
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_EQ(outcome.output, "");
#endif
  }
#ifdef GRADWIRE_PROMTOOL
  if (::access(GRADWIRE_PROMTOOL, X_OK) != 0) {
    GTEST_SKIP() << "all but what promtool says: " GRADWIRE_PROMTOOL
                    " was there when this was configured, and is not now";
  }
#endif
}

// A process that ends without a word leaves its last file.
TEST(Environment, AProcessThatLeavesAtOnceLeavesAWholeFile) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const ScratchFolder folder;
  const auto file = folder.path() / file_name("library", 2, "tried");
  const pid_t child = start_child([&] {
    ::setenv("GRADWIRE_JOB", "tried", 1);
    ::setenv("GRADWIRE_METRICS", ("file:" + folder.path().string()).c_str(), 1);
    observe::begin_watching({.rank = [] { return std::optional(2); }});
    while (!exists(file)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::_Exit(0);
  });
  EXPECT_EQ(status_of(child), 0);
  EXPECT_THAT(read_text(file), EndsWith("# EOF\n"));
  EXPECT_THAT(read_text(file), HasSubstr("gradwire_job_ended{part=\"library\",rank=\"2\",gradwire_job=\"tried\"} 0\n"));
}

// Mutation tried: directories are used as the variables name them.
TEST(Environment, AJobThatChangesItsDirectoryFindsItsFilesWhereItStarted) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const ScratchFolder folder;
  const std::string relative = std::filesystem::relative(folder.path()).string();
  // The folder is so deep that "../.." leads elsewhere from it: from "/" it leads to "/".
  std::filesystem::path elsewhere = folder.path();
  for (const auto& part : std::filesystem::path(relative)) {
    elsewhere /= part == ".." ? "deeper" : part;
  }
  std::filesystem::create_directories(elsewhere);
  const pid_t child = start_child([&] {
    ::setenv("GRADWIRE_JOB", "tried", 1);
    ::setenv("GRADWIRE_METRICS", ("file:" + relative + "/metrics,otlp:" + relative + "/otlp").c_str(), 1);
    ::setenv("GRADWIRE_TRACE", (relative + "/trace").c_str(), 1);
    ::setenv("GRADWIRE_REPORT", (relative + "/report").c_str(), 1);
    std::filesystem::current_path(elsewhere);
    gradwire::test::run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<float> values(1000, 1.0F);
      Session session(transport, Policy::uniform("int8"));
      const TensorId id = session.add("values", {values.data(), values.size(), DType::f32});
      session.ready(id);
      session.finish();
    });
    std::exit(0);
  });
  ASSERT_EQ(status_of(child), 0);
  EXPECT_TRUE(exists(folder.path() / "metrics" / file_name("library", 1, "tried")));
  EXPECT_TRUE(exists(folder.path() / "otlp" / "gradwire-library-rank-1-job-tried.otlp.jsonl"));
  EXPECT_TRUE(exists(folder.path() / "trace" / "gradwire-library-rank-0.events"));
  EXPECT_TRUE(exists(folder.path() / "report" / "gradwire-library-rank-1-job-tried.history"));
}

// The log says "gradwire: warning", and the job ends as usual.
TEST(Environment, WhatIsWrongIsOneWarning) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  for (const char* value : {"directory", "file:/proc/nothing/here"}) {
    const ScratchFolder folder;
    const pid_t child = start_child([&] {
      ::setenv("GRADWIRE_METRICS", value, 1);
      std::string told;
      for (int i = 0; i < 2; ++i) {
        observe::begin_watching(
            {.rank = [] { return std::optional(0); }, .warn = [&](const std::string& text) { told += text + "\n"; }});
        observe::collect();
        observe::collect();
      }
      observe::stop_collecting();
      write_whole(folder.path(), "told", told);
      std::_Exit(0);
    });
    ASSERT_EQ(status_of(child), 0);
    const std::string told = read_text(folder.path() / "told");
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
    EXPECT_THAT(told, HasSubstr(value[0] == 'd' ? "write file:DIRECTORY" : "/proc/nothing"));
    EXPECT_THAT(told, HasSubstr("he job goes on"));
    if (value[0] == 'd') {
      EXPECT_THAT(told, HasSubstr("without metrics of rank 0"));
    }
  }
}

// Files are limited to 100 bytes, as on a full disk.
TEST(Environment, AFullDiskIsOneWarningAndTheFileComesWhenThereIsRoom) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const ScratchFolder folder;
  const auto file = folder.path() / "metrics" / file_name("library", 0, "tried");
  const pid_t child = start_child([&] {
    ::setenv("GRADWIRE_JOB", "tried", 1);
    ::setenv("GRADWIRE_METRICS", ("file:" + folder.file("metrics")).c_str(), 1);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit full{100, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &full);
    std::string told;
    observe::begin_watching(
        {.rank = [] { return std::optional(0); }, .warn = [&](const std::string& text) { told += text + "\n"; }});
    observe::collect();
    const bool nothing = !exists(file);
    const rlimit room{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &room);
    observe::stop_collecting();
    write_whole(folder.path(), "told", told);
    std::_Exit(nothing ? 0 : 1);
  });
  EXPECT_EQ(status_of(child), 0);
  const std::string told = read_text(folder.path() / "told");
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_THAT(told, HasSubstr("File too large"));
  EXPECT_THAT(read_text(file), EndsWith("# EOF\n"));
}

// The second caller waits for the first, since events after the call must be recorded.
TEST(Environment, NobodyGoesOnBeforeItHasBegun) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const pid_t child = start_child([] {
    ::setenv("GRADWIRE_METRICS", "wrong", 1);
    std::atomic<bool> begun{false};
    std::atomic<bool> begun_when_second_went_on{false};
    std::thread second;
    observe::begin_watching({.warn = [&](const std::string&) {
      second = std::thread([&] {
        observe::begin_watching();
        begun_when_second_went_on = begun.load();
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      begun = true;
    }});
    second.join();
    std::_Exit(begun_when_second_went_on ? 0 : 1);
  });
  EXPECT_EQ(status_of(child), 0);
}

}  // namespace
}  // namespace gradwire::watch
