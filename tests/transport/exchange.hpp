// Defines small steps for transport tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradwire/transport.hpp"

namespace gradwire::test {

using Bytes = std::vector<std::byte>;

/// Makes progress() return without waiting.
inline constexpr std::chrono::microseconds kNow{0};

/// Returns bytes that differ between any two (source, destination, salt).
inline Bytes pattern(int source, int destination, std::uint64_t salt, std::size_t bytes) {
  Bytes data(bytes);
  std::uint64_t state =
      (static_cast<std::uint64_t>(source) * 64 + static_cast<std::uint64_t>(destination)) * 1000003 + salt;
  for (std::size_t i = 0; i < bytes; i += sizeof(state)) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t mixed = state ^ state >> 32U;
    std::memcpy(data.data() + i, &mixed, std::min(sizeof(mixed), bytes - i));
  }
  return data;
}

/// Operations with their buffers, posted in order and kept until all are done.
class Batch {
 public:
  explicit Batch(Transport& transport) : transport_(transport) {}
  ~Batch() {
    for (Entry& entry : entries_) {
      if (!transport_.cancel(entry.operation)) {
        new Bytes(std::move(entry.data));  // NOLINT(bugprone-unhandled-exception-at-new): it may be in use, so it leaks
      }
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  Operation& send(int peer, Tag tag, Bytes data) {
    Entry& entry = entries_.emplace_back(Entry{{}, std::move(data), {}, peer, tag});
    transport_.post_send(entry.operation, peer, tag, entry.data);
    return entry.operation;
  }
  /// wait() compares the received bytes with `expected`.
  Operation& receive(int peer, Tag tag, Bytes expected) {
    Entry& entry = entries_.emplace_back(Entry{{}, Bytes(expected.size()), std::move(expected), peer, tag});
    transport_.post_receive(entry.operation, peer, tag, entry.data);
    return entry.operation;
  }
  /// Does the same for a receive of at most `room` bytes; wait() also checks that the size is that of `expected`, and
  /// that nothing was written past the room.
  Operation& receive_at_most(int peer, Tag tag, std::size_t room, Bytes expected) {
    Entry& entry = entries_.emplace_back(Entry{{}, Bytes(room + kGuard.size()), std::move(expected), peer, tag});
    std::copy(kGuard.begin(), kGuard.end(), entry.data.end() - kGuard.size());
    transport_.post_receive_at_most(entry.operation, peer, tag, std::span(entry.data).first(room));
    return entry.operation;
  }
  /// Progresses until all operations are done, then checks the received bytes. Throws after a minute.
  void wait() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (Entry& entry : entries_) {
      while (!entry.operation.done()) {
        transport_.progress(std::chrono::milliseconds(100));
        if (std::chrono::steady_clock::now() > deadline) {
          throw std::runtime_error("not done in a minute: peer " + std::to_string(entry.peer) + ", tag " +
                                   std::to_string(entry.tag));
        }
      }
      if (entry.operation.kind == Operation::Kind::receive) {
        if (entry.operation.at_most) {
          EXPECT_TRUE(std::equal(kGuard.begin(), kGuard.end(), entry.data.end() - kGuard.size()));
          EXPECT_EQ(entry.operation.bytes, entry.expected.size());
          entry.data.resize(entry.expected.size());
        }
        EXPECT_TRUE(entry.data == entry.expected) << "wrong bytes from rank " << entry.peer << ", tag " << entry.tag;
      }
    }
  }

 private:
  static constexpr std::array kGuard{std::byte{0xa5}, std::byte{0x5a}, std::byte{0x96}, std::byte{0x69}};
  struct Entry {
    Operation operation;
    Bytes data;
    Bytes expected;
    int peer;
    Tag tag;
  };
  Transport& transport_;
  std::deque<Entry> entries_;
};

/// Lets every rank wait for every other one.
inline void barrier(Transport& transport, Tag tag) {
  Batch batch(transport);
  for (int peer = 0; peer < transport.world_size(); ++peer) {
    if (peer != transport.rank()) {
      batch.receive(peer, tag, Bytes(1));
      batch.send(peer, tag, Bytes(1));
    }
  }
  batch.wait();
}

}  // namespace gradwire::test
