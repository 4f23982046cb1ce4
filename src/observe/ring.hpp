// A ring of events from one thread to one reader. Events are not overwritten before they were read: those that do not
// fit are dropped and counted, and the writer never waits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "observe/event.hpp"

namespace gradwire::observe {

inline constexpr std::size_t kRingEvents = std::size_t{128} << 10;  // 4 MiB, which are touched as the ring fills

class Ring {
 public:
  /// `events`: a power of two. Throws std::bad_alloc.
  explicit Ring(std::size_t events) : events_(static_cast<Event*>(std::calloc(events, sizeof(Event)))), size_(events) {
    if (events_ == nullptr) {
      throw std::bad_alloc();
    }
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// Called by the writer.
  void push(const Event& event) noexcept {
    const std::uint64_t at = written_.load(std::memory_order_relaxed);
    if (at - known_read_ == size_) [[unlikely]] {
      known_read_ = read_.load(std::memory_order_acquire);
      if (at - known_read_ == size_) {
        dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return;
      }
    }
    events_.get()[at & (size_ - 1)] = event;
    written_.store(at + 1, std::memory_order_release);
  }

  /// Called by the reader: the events that are there, oldest first; the second part begins at the ring's beginning.
  /// They stay until release().
  [[nodiscard]] std::array<std::span<const Event>, 2> peek() noexcept {
    const std::uint64_t from = read_.load(std::memory_order_relaxed);
    const std::uint64_t count = written_.load(std::memory_order_acquire) - from;
    const std::uint64_t first = from & (size_ - 1);
    const std::uint64_t straight = count < size_ - first ? count : size_ - first;
    return {std::span<const Event>(events_.get() + first, straight),
            std::span<const Event>(events_.get(), count - straight)};
  }
  void release(std::size_t events) noexcept {
    read_.store(read_.load(std::memory_order_relaxed) + events, std::memory_order_release);
  }

  /// Number of dropped events. Any thread may call this.
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Free {
    void operator()(Event* events) const noexcept { std::free(events); }
  };
  static constexpr std::size_t kCacheLine = 64;

  // The cache line of the writer.
  alignas(kCacheLine) std::atomic<std::uint64_t> written_{0};
  std::uint64_t known_read_ = 0;
  std::atomic<std::uint64_t> dropped_{0};
  std::unique_ptr<Event, Free> events_;  // the reader may read these two here, since they never change
  const std::uint64_t size_;
  // The cache line of the reader.
  alignas(kCacheLine) std::atomic<std::uint64_t> read_{0};
};

}  // namespace gradwire::observe
