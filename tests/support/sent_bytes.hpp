// A transport that keeps a checksum of everything it sends, for tests that check the bytes of messages.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/transport.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::test {

class SentBytes final : public Transport {
 public:
  explicit SentBytes(std::shared_ptr<Transport> inner)
      : inner_(std::move(inner)), to_(static_cast<std::size_t>(inner_->world_size())) {}

  /// Returns "SIZE:CRC-32C" of the bytes to each other rank, in the order in which they were posted.
  [[nodiscard]] std::string told() const {
    std::string text;
    for (std::size_t peer = 0; peer < to_.size(); ++peer) {
      if (static_cast<int>(peer) != rank()) {
        char crc[16];
        std::snprintf(crc, sizeof crc, "%08x", to_[peer].crc32c);
        text += (text.empty() ? "" : " ") + std::to_string(to_[peer].bytes) + ":" + crc;
      }
    }
    return text;
  }

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return inner_->world_size(); }
  [[nodiscard]] TransportCapabilities capabilities() const override { return inner_->capabilities(); }
  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return inner_->nodes(); }
  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    Sent& to = to_[static_cast<std::size_t>(peer)];
    to.bytes += data.size();
    to.crc32c = wire::crc32c(data, to.crc32c);
    inner_->post_send(operation, peer, tag, data);
  }
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    inner_->post_receive(operation, peer, tag, data);
  }
  void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    inner_->post_receive_at_most(operation, peer, tag, data);
  }
  void post_all_reduce(Operation& operation, View data) override { inner_->post_all_reduce(operation, data); }
  bool progress(std::chrono::microseconds wait) override { return inner_->progress(wait); }
  bool cancel(Operation& operation) noexcept override { return inner_->cancel(operation); }
  void abort(const Error& error) noexcept override { inner_->abort(error); }
  [[nodiscard]] TransportCounters counters() const override { return inner_->counters(); }

 private:
  struct Sent {
    std::uint64_t bytes = 0;
    std::uint32_t crc32c = 0;
  };
  std::shared_ptr<Transport> inner_;
  std::vector<Sent> to_;
};

}  // namespace gradwire::test
