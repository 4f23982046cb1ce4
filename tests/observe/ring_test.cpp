// Tests the ring of a thread: order, overflow, and a reader beside the writer.
#include "observe/ring.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "observe/record.hpp"

namespace gradwire::observe {
namespace {

Event numbered(std::uint64_t number) { return {.begin = number, .bytes = number, .kind = EventKind::send}; }

// Reads all events in order, which removes them.
std::vector<std::uint64_t> drain(Ring& ring) {
  std::vector<std::uint64_t> numbers;
  for (const std::span<const Event> part : ring.peek()) {
    for (const Event& event : part) {
      numbers.push_back(event.begin);
    }
  }
  ring.release(numbers.size());
  return numbers;
}

TEST(Event, FieldsHoldWhatTheyMust) {
  const Event event{.bytes = (std::uint64_t{1} << 44) - 1,
                    .hop = 15,
                    .source = 0xFFFF,
                    .bucket = kNoBucket - 1,
                    .kind = EventKind::error,
                    .peer = peer_of(65534)};
  EXPECT_EQ(event.bytes, (std::uint64_t{1} << 44) - 1);
  EXPECT_EQ(event.hop, 15U);
  EXPECT_EQ(event.source, 0xFFFFU);
  EXPECT_EQ(event.bucket, kNoBucket - 1);
  EXPECT_EQ(event.peer, 65534);
  EXPECT_EQ(peer_of(65535), kNoPeer);
  EXPECT_EQ(peer_of(-1), kNoPeer);
  EXPECT_EQ(duration_between(100, 100), 1U);
  EXPECT_EQ(duration_between(100, 90), 1U) << "a clock that went back";
  EXPECT_EQ(duration_between(0, 32), 2U);
  EXPECT_EQ(duration_between(0, std::uint64_t{1} << 60), 0xFFFFFFFFU);
  for (int kind = 0; kind < kEventKinds; ++kind) {
    EXPECT_NE(to_string(static_cast<EventKind>(kind)), "unknown");
    EXPECT_FALSE(to_string(static_cast<EventKind>(kind)).empty()) << kind;
  }
}

TEST(Ring, KeepsOrderAroundItsEnd) {
  Ring ring(8);
  std::uint64_t written = 0;
  std::uint64_t read = 0;
  for (int turn = 0; turn < 100; ++turn) {
    for (int i = 0; i < 1 + turn % 8; ++i) {
      ring.push(numbered(written++));
    }
    for (const std::uint64_t number : drain(ring)) {
      EXPECT_EQ(number, read++);
    }
  }
  EXPECT_EQ(read, written);
  EXPECT_EQ(ring.dropped(), 0U);
}

TEST(Ring, WhatDoesNotFitIsDroppedAndCountedAndNothingIsOverwritten) {
  Ring ring(4);
  for (std::uint64_t i = 0; i < 11; ++i) {
    ring.push(numbered(i));
  }
  EXPECT_EQ(ring.dropped(), 7U);
  EXPECT_EQ(drain(ring), (std::vector<std::uint64_t>{0, 1, 2, 3}));
  ring.push(numbered(11));
  EXPECT_EQ(drain(ring), (std::vector<std::uint64_t>{11}));
  EXPECT_EQ(ring.dropped(), 7U);
}

TEST(Ring, WhatWasNotReleasedIsSeenAgain) {
  Ring ring(4);
  ring.push(numbered(1));
  ring.push(numbered(2));
  EXPECT_EQ(ring.peek()[0].size(), 2U);
  ring.release(1);
  EXPECT_EQ(drain(ring), (std::vector<std::uint64_t>{2}));
  EXPECT_TRUE(drain(ring).empty());
}

// The reader is slower than the writer: the events that it sees are complete and in order, and all missing ones are
// counted.
TEST(Ring, AReaderBesideTheWriterMissesNothingUncounted) {
  constexpr std::uint64_t kEvents = 400'000;
  Ring ring(64);
  std::atomic<bool> ended{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kEvents; ++i) {
      ring.push(numbered(i));
    }
    ended = true;
  });
  std::uint64_t seen = 0;
  std::uint64_t next = 0;
  for (bool last = false; !last;) {
    last = ended;
    std::uint64_t now = 0;
    for (const std::span<const Event> part : ring.peek()) {
      for (const Event& event : part) {
        EXPECT_GE(event.begin, next);
        EXPECT_EQ(event.begin, event.bytes) << "torn";
        next = event.begin + 1;
        ++now;
      }
    }
    ring.release(now);
    seen += now;
    if (seen % 3 == 0) {
      std::this_thread::yield();
    }
  }
  writer.join();
  EXPECT_EQ(seen + ring.dropped(), kEvents);
  EXPECT_GT(seen, 0U);
}

// A writer that waits before it is a whole ring ahead of the reader loses nothing, whatever the machine does.
TEST(Ring, APacedWriterLosesNothing) {
  constexpr std::uint64_t kEvents = 400'000;
  Ring ring(256);
  std::atomic<std::uint64_t> seen{0};
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kEvents; ++i) {
      while (i - seen.load(std::memory_order_acquire) >= ring.size()) {
        std::this_thread::yield();
      }
      ring.push(numbered(i));
    }
  });
  while (seen < kEvents) {
    for (const std::uint64_t number : drain(ring)) {
      ASSERT_EQ(number, seen.load());
      seen.fetch_add(1, std::memory_order_release);
    }
  }
  writer.join();
  EXPECT_EQ(ring.dropped(), 0U);
}

}  // namespace
}  // namespace gradwire::observe
