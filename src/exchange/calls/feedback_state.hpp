// The state of a FeedbackBuffer: the residuals of calls with it.
#pragma once

#include <cstdint>
#include <memory>

#include "exchange/residuals/bucket_residuals.hpp"
#include "exchange/residuals/residual_store.hpp"
#include "exchange/resolved_call.hpp"
#include "gradwire/communicator.hpp"

namespace gradwire {

struct FeedbackBuffer::State {
  std::uint64_t count = 0;  // elements
  exchange::ResidualStore store = {};
  int world_size = 0;  // world size of the calls whose residuals it holds
  std::uint64_t calls = 0;

  /// Returns whether it may hold residuals; the same answer on every rank that made the same calls.
  [[nodiscard]] bool held() const { return store.has({0, codec::EncodeSite::local}); }
  /// Opens the residuals for a call, and writes into `request` which of them the buffer holds. The result must not
  /// outlive the state. Error(invalid_argument) for another count than the buffer's, or residuals of another world.
  [[nodiscard]] std::unique_ptr<exchange::BucketResiduals> open(int rank, int world, exchange::CallRequest& request);
};

}  // namespace gradwire
