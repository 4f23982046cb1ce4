// A transport that hands all calls on to another one. Tests derive from it and override the calls that they examine.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/transport.hpp"

namespace gradwire::test {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return inner_->world_size(); }
  [[nodiscard]] TransportCapabilities capabilities() const override { return inner_->capabilities(); }
  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return inner_->nodes(); }
  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
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
  [[nodiscard]] std::vector<PeerState> ask(std::chrono::milliseconds limit) override { return inner_->ask(limit); }
  [[nodiscard]] std::optional<int> failed_peer() const noexcept override { return inner_->failed_peer(); }
  [[nodiscard]] TransportCounters counters() const override { return inner_->counters(); }

 protected:
  [[nodiscard]] Transport& inner() const noexcept { return *inner_; }

 private:
  std::shared_ptr<Transport> inner_;
};

}  // namespace gradwire::test
