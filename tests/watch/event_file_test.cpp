// Tests files of events: the recorded events are read, and a truncated file is read up to its end.
#include "watch/event_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "gradwire/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::watch {
namespace {

using gradwire::test::error_of;
using gradwire::test::read_text;
using gradwire::test::ScratchFolder;
using observe::Event;
using observe::EventKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Read {
  std::vector<EventFileHead> heads;
  std::vector<EventFileScale> scales;
  std::vector<EventFileSource> sources;
  std::vector<std::uint64_t> bytes;    // bytes of the events
  std::vector<std::uint32_t> threads;  // likewise
  bool whole = false;
};

Read read(const std::filesystem::path& file) {
  Read result;
  result.whole =
      read_event_file(file, {.head = [&](const EventFileHead& head) { result.heads.push_back(head); },
                             .source = [&](const EventFileSource& source) { result.sources.push_back(source); },
                             .scale = [&](const EventFileScale& scale) { result.scales.push_back(scale); },
                             .events =
                                 [&](std::uint32_t thread, std::span<const Event> events) {
                                   for (const Event& event : events) {
                                     result.bytes.push_back(event.bytes);
                                     result.threads.push_back(thread);
                                   }
                                 }});
  return result;
}

Event at_step(std::uint32_t step, std::uint64_t bytes, EventKind kind = EventKind::send) {
  return {.bytes = bytes, .source = 1, .step = step, .kind = kind};
}

class Traced : public ::testing::Test {
 protected:
  std::shared_ptr<EventFileSink> sink(const std::string& steps = "", std::uint64_t most = 1 << 20) {
    return std::make_shared<EventFileSink>(
        EventFileOptions{.target = TraceTarget::parse(folder_.file("trace") + steps),
                         .part = "mpi",
                         .rank = [] { return std::optional(3); },
                         .warn = [this](const std::string& text) { told_.push_back(text); },
                         .most_bytes = most});
  }
  static void take(EventFileSink& sink, const std::vector<Event>& a, const std::vector<Event>& b, bool last = false) {
    const std::vector<observe::Stretch> stretches{{1, a}, {2, b}};
    sink.take({.clock = observe::ClockKind::tsc,
               .scale = {.ticks = 100, .nanoseconds = 50, .nanoseconds_per_tick = 0.5},
               .stretches = stretches,
               .recorded = 9,
               .dropped = 2,
               .last = last});
  }
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "trace" / "gradwire-mpi-rank-3.events"; }

  ScratchFolder folder_;
  std::vector<std::string> told_;
};

TEST_F(Traced, WhatWasRecordedIsRead) {
  const observe::SourceId source = observe::add_source({.rank = 3, .world_size = 8});
  const auto to = sink();
  take(*to, {at_step(0, 10), at_step(0, 11)}, {at_step(0, 20)});
  take(*to, {at_step(1, 12)}, {}, true);
  const Read got = read(file());
  EXPECT_TRUE(got.whole);
  ASSERT_EQ(got.heads.size(), 1U);
  EXPECT_EQ(got.heads[0].rank, 3);
  EXPECT_NE(std::string(got.heads[0].host), "");
  EXPECT_THAT(std::string(got.heads[0].monotonic), HasSubstr("-")) << "a boot's number";
  EXPECT_EQ(got.heads[0].clock, static_cast<std::uint32_t>(observe::ClockKind::tsc));
  EXPECT_THAT(got.bytes, ElementsAre(10, 11, 20, 12));
  EXPECT_THAT(got.threads, ElementsAre(1, 1, 2, 1));
  ASSERT_EQ(got.scales.size(), 2U);
  EXPECT_EQ(got.scales[0].scale().nanoseconds_at(102), 51);
  EXPECT_GT(got.scales[0].realtime, 1'000'000'000'000'000'000);
  EXPECT_EQ(got.scales[1].dropped, 2U);
  ASSERT_FALSE(got.sources.empty());
  EXPECT_EQ(got.sources.back().id, source);
  EXPECT_EQ(got.sources.back().world_size, 8);
  EXPECT_TRUE(told_.empty());
}

TEST_F(Traced, StepsAreChosenAndWhatHasNoneIsKept) {
  const auto to = sink(":steps=2-3");
  take(*to, {at_step(1, 1), at_step(2, 2), at_step(0, 9, EventKind::pull), at_step(3, 3), at_step(4, 4)}, {}, true);
  EXPECT_THAT(read(file()).bytes, ElementsAre(2, 9, 3));
}

TEST_F(Traced, AFileThatWasCutOffIsReadUpToThere) {
  const auto to = sink();
  take(*to, {at_step(0, 10), at_step(0, 11)}, {at_step(0, 20)});
  const std::string text = read_text(file());
  const Read whole = read(file());
  EXPECT_FALSE(whole.whole);
  EXPECT_EQ(whole.bytes.size(), 3U);
  std::size_t before = 0;
  for (std::size_t bytes = 177; bytes < text.size(); ++bytes) {
    std::ofstream(folder_.file("cut"), std::ios::binary | std::ios::trunc) << text.substr(0, bytes);
    const Read cut = read(folder_.file("cut"));
    EXPECT_FALSE(cut.whole);
    EXPECT_GE(cut.bytes.size(), before);
    before = cut.bytes.size();
  }
  EXPECT_EQ(before, 2U) << "all but the last event, which lacks a byte";
}

TEST_F(Traced, DamageIsNamed) {
  const auto to = sink();
  take(*to, {at_step(0, 10)}, {}, true);
  const std::string text = read_text(file());
  const auto message = [&](const std::string& damaged) {
    std::ofstream(folder_.file("bad"), std::ios::binary | std::ios::trunc) << damaged;
    const Error error = error_of([&] { read(folder_.file("bad")); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    return std::string(error.what());
  };
  EXPECT_THAT(message(""), HasSubstr("no head at byte 0"));
  EXPECT_THAT(message("# HELP gradwire_info and more text than a head has\n"), HasSubstr("no block at byte 0"));
  std::string other = text;
  other[32] = 7;
  EXPECT_THAT(message(other), HasSubstr("bad: events of version 7, and this release of gradwire reads version 2"));
  std::string endless = text;
  for (std::size_t at = 32 + 16; at < 32 + 144; ++at) {  // the names of the host and of its clock
    endless[at] = 'x';
  }
  std::ofstream(folder_.file("endless"), std::ios::binary) << endless;
  const EventFileHead head = read(folder_.file("endless")).heads.at(0);
  EXPECT_EQ(std::string(head.host).size(), 63U);
  EXPECT_EQ(std::string(head.monotonic).size(), 63U);
  std::string beyond = text;
  beyond[32 + 11] = 0x7f;  // the rank's highest byte
  EXPECT_THAT(message(beyond), HasSubstr("bad: rank 2130706435, where a job has at most 1048576, at byte 0"));
  std::string moved = text;
  moved.erase(176, 80);  // the scale
  EXPECT_THAT(message(moved), HasSubstr("no block at byte 176"));
}

TEST_F(Traced, ALargeFileEndsWithAWarning) {
  const auto to = sink("", 400);
  for (int i = 0; i < 5; ++i) {
    take(*to, {at_step(0, 10), at_step(0, 11)}, {});
  }
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0], HasSubstr("name the steps that matter"));
  EXPECT_LE(std::filesystem::file_size(file()), 800U);
  EXPECT_FALSE(read(file()).whole);
}

TEST_F(Traced, WhatCannotBeWrittenIsToldOnce) {
  std::ofstream(folder_.file("trace")) << "in the way";
  const auto to = sink();
  take(*to, {at_step(0, 10)}, {});
  take(*to, {at_step(0, 10)}, {}, true);
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0], HasSubstr("gradwire-mpi-rank-3.events"));
  EXPECT_THAT(told_[0], HasSubstr("the job goes on"));
}

TEST_F(Traced, ADirectoryThatIsRemovedIsToldOnce) {
  const auto to = sink();
  take(*to, {at_step(0, 10)}, {});
  std::filesystem::remove_all(file().parent_path());
  take(*to, {at_step(0, 10)}, {});
  take(*to, {at_step(0, 10)}, {}, true);
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0], HasSubstr("gradwire-mpi-rank-3.events: the file was removed"));
  EXPECT_THAT(told_[0], HasSubstr("the job goes on"));
}

// Writing fails as on a full disk.
TEST_F(Traced, AFileWithoutRoomForItsHeadIsTakenBack) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto to = sink();
    take(*to, {at_step(0, 10)}, {});
    take(*to, {at_step(0, 10)}, {}, true);
    std::_Exit(told_.size() == 1 && told_[0].find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::is_directory(file().parent_path()));
  EXPECT_FALSE(std::filesystem::exists(file()));
}

// A world of one thread has no ranks to distinguish: it has the rank of its process.
TEST_F(Traced, AWorldOfOneIsNoRankOfItsOwn) {
  const auto to = sink();
  const observe::SourceId alone = observe::add_source({.rank = 0, .world_size = 1, .shares_process = true});
  const observe::SourceId one_of_two = observe::add_source({.rank = 1, .world_size = 2, .shares_process = true});
  take(*to, {at_step(0, 10)}, {}, true);
  for (const EventFileSource& source : read(file()).sources) {
    if (source.id == alone || source.id == one_of_two) {
      EXPECT_EQ(source.shares_process, source.id == alone ? 0U : 1U);
    }
  }
}

TEST(TraceTarget, IsADirectoryAndSteps) {
  EXPECT_EQ(TraceTarget::parse("/tmp/a:b").directory, "/tmp/a:b");
  const TraceTarget steps = TraceTarget::parse("/tmp/a:steps=100-120");
  EXPECT_EQ(steps.directory, "/tmp/a");
  EXPECT_EQ(steps.first_step, 100U);
  EXPECT_EQ(steps.last_step, 120U);
  for (const char* bad : {"", ":steps=1-2", "a:steps=", "a:steps=5", "a:steps=5-4", "a:steps=5-6x", "a:steps=-6"}) {
    EXPECT_THAT(error_of([&] { static_cast<void>(TraceTarget::parse(bad)); }).what(), HasSubstr("steps=100-120"))
        << bad;
  }
}

}  // namespace
}  // namespace gradwire::watch
