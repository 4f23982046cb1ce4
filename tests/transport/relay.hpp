// Defines streams that are threads, a port between a stream and a relay, and the behaviour of every relay over any
// transport.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/relayed_messages.hpp"

namespace gradwire::test {

/// Runs pushed work in order on a thread of its own.
class ThreadStream {
 public:
  ThreadStream() : thread_([this] { run(); }) {}
  ThreadStream(const ThreadStream&) = delete;
  ThreadStream& operator=(const ThreadStream&) = delete;
  ~ThreadStream() {
    push({});
    thread_.join();
  }
  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void synchronize() {
    std::atomic_flag done;
    push([&] {
      done.test_and_set();
      done.notify_all();
    });
    done.wait(false);
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (!work) {
        return;
      }
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

class ThreadPort final : public transport::StreamPort {
 public:
  /// Numbers begin after `first`.
  explicit ThreadPort(Number first = 0) : told_(first), go_(first) {}

  void enter() override { entered = true; }
  [[nodiscard]] std::byte* acquire(std::size_t bytes) override {
    for (auto& [memory, used] : used_) {
      if (!used && sizes_[memory] == bytes) {
        used = true;
        return memory;
      }
    }
    std::byte* memory = buffers_.emplace_back(std::make_unique<std::byte[]>(bytes)).get();
    used_[memory] = true;
    sizes_[memory] = bytes;
    pinned_ += bytes;
    return memory;
  }
  void release(std::byte* staging) noexcept override { used_[staging] = false; }
  void leak(std::byte* /*staging*/) noexcept override {}
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept override { return pinned_; }
  void require_no_capture(void* stream) override {
    if (stream == nullptr) {
      throw Error(ErrorCode::unsupported, "cannot be captured");
    }
  }
  void copy_to_host(void* stream, std::byte* staging, std::span<const std::byte> device) override {
    of(stream).push([=] { std::memcpy(staging, device.data(), device.size()); });
  }
  void copy_to_device(void* stream, std::span<std::byte> device, const std::byte* staging) override {
    of(stream).push([=] { std::memcpy(device.data(), staging, device.size()); });
  }
  void tell_host(void* stream, Number number) override {
    of(stream).push([=, this] { told_ = number; });
  }
  void wait_for_host(void* stream, Number number) override {
    of(stream).push([=, this] {
      for (Number now = go_; static_cast<std::int32_t>(now - number) < 0; now = go_) {
        go_.wait(now);
      }
    });
  }
  [[nodiscard]] Number told() const noexcept override { return told_; }
  void tell_stream(Number number) noexcept override {
    go_ = number;
    go_.notify_all();
  }

  std::atomic<bool> entered = false;

 private:
  static ThreadStream& of(void* stream) { return *static_cast<ThreadStream*>(stream); }
  std::atomic<Number> told_;
  std::atomic<Number> go_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  std::map<std::byte*, bool> used_;
  std::map<std::byte*, std::size_t> sizes_;
  std::uint64_t pinned_ = 0;
};

/// Plays one rank of a few groups in which every rank sends to every other. The stream writes messages before they are
/// sent and reads them after they arrived. Both are wrong if a message leaves before the stream reaches it, or if the
/// stream does not wait. Returns the differences.
inline std::string exchange_over_relay(transport::RelayedMessages& messages, ThreadStream& stream, int groups) {
  constexpr std::uint64_t kSizes[] = {1, 2039, 2047, 2048, 2049, 30'001, 66'000};
  const auto world = static_cast<std::size_t>(messages.world_size());
  const auto self = static_cast<std::size_t>(messages.rank());
  std::vector<std::vector<std::byte>> out(world);
  std::vector<std::vector<std::byte>> in(world);
  std::string wrong;
  const auto byte_of = [](int group, std::size_t from, std::size_t to) {
    return std::byte(static_cast<unsigned char>(7 * static_cast<std::size_t>(group) + 31 * from + 3 * to + 1));
  };
  for (std::size_t peer = 0; peer < world; ++peer) {
    out[peer].resize(kSizes[std::size(kSizes) - 1]);
    in[peer].resize(out[peer].size());
  }
  for (int group = 0; group < groups; ++group) {
    const std::uint64_t bytes = kSizes[static_cast<std::size_t>(group) % std::size(kSizes)];
    stream.push([&, group] {
      std::this_thread::sleep_for(std::chrono::milliseconds(self == 0 ? 2 : 0));  // rank 0 is late
      for (std::size_t peer = 0; peer < world; ++peer) {
        std::fill(out[peer].begin(), out[peer].end(), byte_of(group, self, peer));
        std::fill(in[peer].begin(), in[peer].end(), std::byte{0});
      }
    });
    messages.begin_group();
    for (std::size_t peer = 0; peer < world; ++peer) {
      if (peer != self) {
        messages.send(std::span(out[peer]).first(bytes), static_cast<int>(peer), &stream);
        messages.receive(std::span(in[peer]).first(bytes), static_cast<int>(peer), &stream);
      }
    }
    messages.end_group();
    stream.push([&, group, bytes] {
      for (std::size_t peer = 0; peer < world; ++peer) {
        for (std::uint64_t i = 0; peer != self && i < in[peer].size(); ++i) {
          if (in[peer][i] != (i < bytes ? byte_of(group, peer, self) : std::byte{0})) {
            wrong += "group " + std::to_string(group) + ", byte " + std::to_string(i) + " of rank " +
                     std::to_string(peer) + "\n";
            break;
          }
        }
      }
    });
  }
  stream.synchronize();
  messages.poll();
  return wrong;
}

}  // namespace gradwire::test
