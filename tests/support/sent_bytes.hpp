// A transport that keeps a checksum of everything it sends, for tests that check the bytes of messages.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/transport.hpp"
#include "tests/support/forwarding_transport.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::test {

class SentBytes final : public ForwardingTransport {
 public:
  explicit SentBytes(std::shared_ptr<Transport> inner)
      : ForwardingTransport(std::move(inner)), to_(static_cast<std::size_t>(this->inner().world_size())) {}

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

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    Sent& to = to_[static_cast<std::size_t>(peer)];
    to.bytes += data.size();
    to.crc32c = wire::crc32c(data, to.crc32c);
    inner().post_send(operation, peer, tag, data);
  }

 private:
  struct Sent {
    std::uint64_t bytes = 0;
    std::uint32_t crc32c = 0;
  };
  std::vector<Sent> to_;
};

}  // namespace gradwire::test
