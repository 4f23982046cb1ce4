// Tests recording and reading: threads that end, sinks that are added, removed, or fail.
#include "observe/collector.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "gathering.hpp"
#include "observe/record.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::observe::test {
namespace {

const CollectorOptions kQuick{.interval = std::chrono::milliseconds(2), .ring_events = 1024};

Event numbered(std::uint64_t number) { return {.begin = ticks(), .bytes = number, .kind = EventKind::send}; }

TEST(Recording, IsOffUntilSomebodyReads) {
  EXPECT_FALSE(on());
  EXPECT_EQ(ticks(), 0U);
  record(numbered(1));
  record_since(ticks(), numbered(2));
  { const Span span({.kind = EventKind::save}); }
  publish({.source = 1});
  {
    Observed observed(kByHand);
    EXPECT_TRUE(on());
    EXPECT_NE(ticks(), 0U);
    record(numbered(3));
    observed.stop();
    ASSERT_EQ(observed.kept->seen().size(), 1U) << "earlier events are not delivered";
    EXPECT_EQ(observed.kept->seen()[0].event.bytes, 3U);
    EXPECT_TRUE(observed.kept->snapshots().empty());
    EXPECT_TRUE(observed.kept->ended());
  }
  EXPECT_FALSE(on());
}

TEST(Recording, ASpanIsOneEventThatTakesItsTime) {
  Observed observed(kByHand);
  {
    const Span span({.source = 7, .kind = EventKind::save});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  observed.stop();
  const auto seen = observed.kept->seen();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].event.source, 7U);
  EXPECT_GE(observed.kept->scale().seconds(seen[0].event.duration * kTicksOfDuration), 0.0049);
}

// Both clocks measure the same times, and event times are those of CLOCK_MONOTONIC.
TEST(Recording, TicksAreTimes) {
  for (const ClockKind clock : {best_clock(), ClockKind::monotonic}) {
    CollectorOptions options = kByHand;
    options.clock = clock;
    Observed observed(options);
    const std::uint64_t before = monotonic_nanoseconds();
    record(numbered(1));
    const std::uint64_t between = monotonic_nanoseconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    record(numbered(2));
    const std::uint64_t after = monotonic_nanoseconds();
    observed.stop();
    const auto seen = observed.kept->seen();
    ASSERT_EQ(seen.size(), 2U);
    constexpr std::int64_t kSlack = 20'000;  // ns
    const auto at = [&](std::size_t i) { return observed.kept->scale().nanoseconds_at(seen[i].event.begin); };
    EXPECT_GE(at(0), static_cast<std::int64_t>(before) - kSlack) << to_string(clock);
    EXPECT_LE(at(0), static_cast<std::int64_t>(between) + kSlack) << to_string(clock);
    EXPECT_GE(at(1) - at(0), 20'000'000 - kSlack) << to_string(clock);
    EXPECT_LE(at(1), static_cast<std::int64_t>(after) + kSlack) << to_string(clock);
  }
}

TEST(Collector, EveryThreadKeepsItsOrderAndNoneIsLost) {
  constexpr std::uint64_t kThreads = 8;
  constexpr std::uint64_t kEvents = 1000;  // of each thread; a ring holds them
  Observed observed(kQuick);
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([=] {
      for (std::uint64_t i = 0; i < kEvents; ++i) {
        record({.begin = ticks(), .bytes = i, .source = thread + 1, .kind = EventKind::send});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();  // the thread's rings stay until they have been read
  }
  observed.stop();
  std::map<std::uint64_t, std::uint64_t> next;
  std::map<std::uint64_t, std::set<std::uint32_t>> rings;
  for (const Kept::Seen& seen : observed.kept->seen()) {
    const std::uint64_t source = seen.event.source;
    EXPECT_EQ(seen.event.bytes, next[source]++);
    rings[source].insert(seen.thread);
  }
  EXPECT_EQ(next.size(), kThreads);
  std::set<std::uint32_t> all;
  for (const auto& [source, numbers] : rings) {
    EXPECT_EQ(numbers.size(), 1U);
    EXPECT_EQ(next[source], kEvents);
    all.insert(numbers.begin(), numbers.end());
  }
  EXPECT_EQ(all.size(), kThreads) << "each thread has a number of its own";
  EXPECT_EQ(observed.kept->recorded(), kThreads * kEvents);
  EXPECT_EQ(observed.kept->dropped(), 0U);
}

TEST(Collector, WhatRingsDropIsCountedAlsoOfThreadsThatAreGone) {
  Observed observed(kByHand);
  std::thread([] {
    for (std::uint64_t i = 0; i < 1500; ++i) {
      record(numbered(i));
    }
  }).join();
  collect();
  EXPECT_EQ(observed.kept->recorded(), 1024U);
  EXPECT_EQ(observed.kept->dropped(), 476U);
  collect();
  EXPECT_EQ(observed.kept->dropped(), 476U);
  observed.stop();
  Observed another(kByHand);
  another.stop();
  EXPECT_EQ(another.kept->dropped(), 0U) << "these events belong to another collector";
}

TEST(Collector, ASlowSinkLosesEventsButWaitsNobody) {
  Observed observed(kQuick);
  observed.kept->delay = std::chrono::milliseconds(20);
  std::uint64_t recorded = 0;
  std::thread([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
    while (std::chrono::steady_clock::now() < end) {
      record(numbered(recorded++));
    }
  }).join();
  observed.stop();
  EXPECT_EQ(observed.kept->recorded() + observed.kept->dropped(), recorded);
}

TEST(Collector, SinksComeAndGoAndEachSeesItsTime) {
  Observed first(kByHand);
  record(numbered(1));
  collect();
  {
    Observed second(kByHand);
    record(numbered(2));
    second.stop();
    EXPECT_EQ(second.kept->seen().size(), 1U);
    EXPECT_TRUE(second.kept->ended());
    EXPECT_FALSE(first.kept->ended());
    EXPECT_TRUE(on());
  }
  record(numbered(3));
  first.stop();
  EXPECT_EQ(first.kept->seen().size(), 3U);
  EXPECT_FALSE(on());
}

TEST(Collector, ReadsByItself) {
  Observed observed(kQuick);
  record(numbered(1));
  for (int i = 0; i < 5000 && observed.kept->recorded() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(observed.kept->recorded(), 1U);
}

// Records one more event in the middle of a round, on a thread that then ends.
class Interrupting final : public Sink {
 public:
  void take(const Round& round) override {
    recorded = round.recorded;
    if (!std::exchange(done_, true)) {
      record_last = true;
      thread.join();
    }
  }
  std::thread thread;
  std::atomic<bool> record_last{false};
  std::uint64_t recorded = 0;

 private:
  bool done_ = false;
};

TEST(Collector, WhatAThreadRecordsBeforeItsEndIsReadInTheNextRound) {
  const auto sink = std::make_shared<Interrupting>();
  add_sink(sink, kByHand);
  std::atomic<bool> begun{false};
  sink->thread = std::thread([&] {
    record(numbered(1));
    begun = true;
    while (!sink->record_last) {
      std::this_thread::yield();
    }
    record(numbered(2));
  });
  while (!begun) {
    std::this_thread::yield();
  }
  collect();
  EXPECT_EQ(sink->recorded, 1U);
  remove_sink(sink);
  EXPECT_EQ(sink->recorded, 2U);
}

std::atomic<int> g_warnings{0};

class Failing final : public Sink {
 public:
  void take(const Round& /*round*/) override { throw std::runtime_error("no space left"); }
};

TEST(Collector, ASinkThatFailsIsToldOnceAndEndsAlone) {
  set_log_sink([](LogLevel, std::string_view text) {
    g_warnings += text.find("no space left") != std::string_view::npos ? 1 : 0;
  });
  {
    Observed observed(kByHand);
    const auto failing = std::make_shared<Failing>();
    add_sink(failing);
    record(numbered(1));
    collect();
    record(numbered(2));
    collect();
    remove_sink(failing);
    observed.stop();
    EXPECT_EQ(observed.kept->seen().size(), 2U);
  }
  EXPECT_EQ(g_warnings, 1);
  add_sink(std::make_shared<Failing>(), kByHand);
  collect();
  EXPECT_FALSE(on()) << "no sink is left";
  EXPECT_EQ(g_warnings, 2);
  Observed again(kQuick);
  record(numbered(3));
  again.stop();
  EXPECT_EQ(again.kept->seen().size(), 1U);
  set_log_sink(nullptr);
}

TEST(Sources, AreNumberedAndKeepTheLatestSnapshot) {
  const SourceId a = add_source({.kind = Source::Kind::table, .rank = 3, .world_size = 5});
  const SourceId b = add_source({});
  EXPECT_NE(a, b);
  ASSERT_TRUE(source_of(a));
  EXPECT_EQ(source_of(a)->rank, 3);
  EXPECT_FALSE(source_of(0));
  Observed observed(kByHand);
  SessionStatistics statistics;
  for (statistics.steps = 1; statistics.steps <= 3; ++statistics.steps) {
    publish({.source = a, .statistics = statistics, .last = statistics.steps == 3});
    publish({.source = b, .statistics = statistics});
  }
  collect();
  const auto snapshots = observed.kept->snapshots();
  ASSERT_EQ(snapshots.size(), 2U);
  EXPECT_EQ(snapshots[0].source, a);
  EXPECT_EQ(snapshots[0].statistics.steps, 3U);
  EXPECT_TRUE(snapshots[0].last);
  EXPECT_FALSE(snapshots[1].last);
  collect();
  EXPECT_EQ(observed.kept->snapshots().size(), 2U) << "each snapshot is passed on once";
}

}  // namespace
}  // namespace gradwire::observe::test
