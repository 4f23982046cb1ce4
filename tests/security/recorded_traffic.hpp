// Keeps a copy of every message that ranks send, as somebody on the network could.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/forwarding_transport.hpp"

namespace gradwire::test {

struct RecordedMessage {
  int from = -1;
  int to = -1;
  Tag tag = 0;
  std::vector<std::byte> bytes;
};

/// Whether the message is a frame, sealed or not.
inline bool is_frame(const RecordedMessage& message) {
  return message.bytes.size() >= 32 && std::memcmp(message.bytes.data(), "GRW1", 4) == 0;
}

class Traffic {
 public:
  using Observer = std::function<void(const RecordedMessage& message)>;
  /// `observer` is called for each message, by one thread at a time.
  explicit Traffic(Observer observer = {}) : observer_(std::move(observer)) {}

  void add(RecordedMessage message) {
    const std::lock_guard lock(mutex_);
    if (observer_) {
      observer_(message);
    }
    messages_.push_back(std::move(message));
  }
  /// To be called when no rank sends.
  [[nodiscard]] const std::vector<RecordedMessage>& messages() const noexcept { return messages_; }

 private:
  Observer observer_;
  std::mutex mutex_;
  std::vector<RecordedMessage> messages_;
};

class RecordingTransport final : public ForwardingTransport {
 public:
  RecordingTransport(std::shared_ptr<Transport> inner, std::shared_ptr<Traffic> traffic)
      : ForwardingTransport(std::move(inner)), traffic_(std::move(traffic)) {}

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    traffic_->add({rank(), peer, tag, {data.begin(), data.end()}});
    inner().post_send(operation, peer, tag, data);
  }
  void post_all_reduce(Operation& operation, View data) override {  // a library sends the values as they are
    traffic_->add({rank(), -1, 0, bytes_of(data)});
    inner().post_all_reduce(operation, data);
  }
  void all_reduce(View data) override {
    traffic_->add({rank(), -1, 0, bytes_of(data)});
    inner().all_reduce(data);
  }

 private:
  static std::vector<std::byte> bytes_of(View data) {
    const auto* first = static_cast<const std::byte*>(data.data);
    return {first, first + data.count * element_bytes(data.dtype)};
  }

  std::shared_ptr<Traffic> traffic_;
};

/// A world of threads whose messages are recorded.
inline std::vector<std::shared_ptr<Transport>> recorded_world(int ranks, const std::shared_ptr<Traffic>& traffic,
                                                              const std::vector<std::uint32_t>& nodes = {}) {
  auto world = make_inproc_world(ranks, nodes);
  for (auto& endpoint : world) {
    endpoint = std::make_shared<RecordingTransport>(endpoint, traffic);
  }
  return world;
}

}  // namespace gradwire::test
