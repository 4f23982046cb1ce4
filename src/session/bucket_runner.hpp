// The communicating half of a session: agrees on the plan, starts buckets, collects what they did. One thread at a
// time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collective/control.hpp"
#include "collective/host_executor.hpp"
#include "gradwire/session.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {

/// Memory of one tensor in one step.
struct TensorMemory {
  View gradient;
  bool zero = false;  // this rank contributes zeros
};

/// What the coming buckets have in common.
struct StepInfo {
  std::uint32_t step = 0;
  bool weighted = false;
  double weight = 1;
  bool flush = false;  // exactly, so that no residual is left
};

class BucketRunner {
 public:
  BucketRunner(std::shared_ptr<Transport> transport, const SessionOptions& options);

  /// Error(mismatch) on every rank, naming the first difference, unless all ranks made the same plan.
  void agree(const plan::Plan& plan, bool weighted, std::uint64_t step);
  /// Starts the reduction of a bucket; `memory` is indexed by tensor.
  void start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
             const StepInfo& step);
  struct Ended {
    std::uint32_t bucket;
    bool nonfinite;  // NaN or Inf in the result
  };
  /// Progress; waits up to `wait` where nothing can be done. Returns the buckets that have ended.
  std::vector<Ended> advance(std::chrono::microseconds wait);
  /// Ranks whose gradients hold NaN or Inf; asks all of them. `scale` is this rank's loss scale: Error(mismatch) where
  /// another rank has another one.
  [[nodiscard]] std::vector<int> nonfinite_ranks(std::span<const TensorMemory> memory, double scale,
                                                 std::uint64_t step);
  /// What error feedback holds; not while a bucket is under way.
  [[nodiscard]] plan::ResidualStore& residuals() noexcept { return residuals_; }
  [[nodiscard]] bool idle() const noexcept { return flights_.empty(); }

  /// Exact, from `root`, after a check that all ranks mean the same.
  void broadcast(std::span<const View> values, int root);
  /// Error(mismatch) naming the ranks whose bytes differ.
  void compare(std::span<const View> values, std::uint64_t step);
  void fail(ErrorCode code, const std::string& message) noexcept { executor_.fail(code, message); }

  /// One row a group of the plan, any thread.
  [[nodiscard]] std::vector<Statistics> statistics() const;
  void reset_statistics();

 private:
  struct Flight {
    std::uint32_t bucket;
    std::size_t group;
    std::shared_ptr<collective::Execution> execution;
    // For measured errors: the same reduction, exactly, over a copy of the inputs.
    std::shared_ptr<collective::Execution> exact;
    std::vector<std::byte> exact_values;
    codec::TensorList results;  // the gradients, to be read
    std::unique_ptr<plan::BucketResiduals> residuals = nullptr;
    plan::ResidualCall call = {};
  };
  // What the bucket does with residuals in this step; null where it neither holds nor makes any.
  std::unique_ptr<plan::BucketResiduals> open_residuals(const plan::Bucket& bucket, const plan::Stage& stage,
                                                        std::uint64_t chunk_bytes, plan::ResidualCall& call);
  void start_exact(Flight& flight, const plan::Plan& plan, const plan::Bucket& bucket, const collective::Task& task);
  void collect(Flight& flight);

  std::shared_ptr<Transport> transport_;
  SessionOptions options_;
  collective::HostExecutor executor_;
  collective::Control control_;
  plan::ResidualStore residuals_;
  std::deque<Flight> flights_;
  mutable std::mutex statistics_mutex_;
  std::vector<Statistics> statistics_;
};

}  // namespace gradwire::session
