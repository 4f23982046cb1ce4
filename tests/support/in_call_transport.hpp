// A transport with a blocking all-reduce, as MPI has, on top of an in-process one; it counts its calls.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "gradwire/transport.hpp"

namespace gradwire::test {

class InCallTransport final : public Transport {
 public:
  explicit InCallTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::string name() const override { return "in_call(" + inner_->name() + ")"; }
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return inner_->world_size(); }
  [[nodiscard]] TransportCapabilities capabilities() const override {
    ++questions_;
    TransportCapabilities capabilities = inner_->capabilities();
    capabilities.all_reduce_in_call = true;
    return capabilities;
  }
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
  void all_reduce(View data) override {
    ++calls_;
    Operation operation;
    inner_->post_all_reduce(operation, data);
    while (!operation.done()) {
      inner_->progress(std::chrono::milliseconds(1));
    }
  }
  bool progress(std::chrono::microseconds wait) override { return inner_->progress(wait); }
  bool cancel(Operation& operation) noexcept override { return inner_->cancel(operation); }
  void abort(const Error& error) noexcept override { inner_->abort(error); }
  [[nodiscard]] TransportCounters counters() const override { return inner_->counters(); }

  /// Returns the number of calls of all_reduce() on this rank.
  [[nodiscard]] int calls() const noexcept { return calls_; }
  /// Returns the number of calls of capabilities() on this rank.
  [[nodiscard]] int questions() const noexcept { return questions_; }

 private:
  std::shared_ptr<Transport> inner_;
  std::atomic<int> calls_ = 0;
  mutable std::atomic<int> questions_ = 0;
};

}  // namespace gradwire::test
