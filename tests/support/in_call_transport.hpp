// A transport with a blocking all-reduce, as MPI has, on top of an in-process one; it counts its calls.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "gradwire/transport.hpp"
#include "tests/support/forwarding_transport.hpp"

namespace gradwire::test {

class InCallTransport final : public ForwardingTransport {
 public:
  explicit InCallTransport(std::shared_ptr<Transport> inner) : ForwardingTransport(std::move(inner)) {}

  [[nodiscard]] std::string name() const override { return "in_call(" + inner().name() + ")"; }
  [[nodiscard]] TransportCapabilities capabilities() const override {
    ++questions_;
    TransportCapabilities capabilities = inner().capabilities();
    capabilities.all_reduce_in_call = true;
    return capabilities;
  }
  void all_reduce(View data) override {
    ++calls_;
    Operation operation;
    inner().post_all_reduce(operation, data);
    while (!operation.done()) {
      inner().progress(std::chrono::milliseconds(1));
    }
  }

  /// Returns the number of calls of all_reduce() on this rank.
  [[nodiscard]] int calls() const noexcept { return calls_; }
  /// Returns the number of calls of capabilities() on this rank.
  [[nodiscard]] int questions() const noexcept { return questions_; }

 private:
  std::atomic<int> calls_ = 0;
  mutable std::atomic<int> questions_ = 0;
};

}  // namespace gradwire::test
