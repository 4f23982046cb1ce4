// The runner of sessions over host memory: it gives buckets to the host executor over a transport.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/peers.hpp"
#include "gradwire/session.hpp"
#include "memory/device_pointer.hpp"
#include "plan/plan.hpp"
#include "session/host/bucket_calls.hpp"
#include "session/host/bucket_flight.hpp"
#include "session/host/bucket_health.hpp"
#include "session/host/executor_pair.hpp"
#include "session/host/host_probes.hpp"
#include "session/host/host_residuals.hpp"
#include "session/host/host_small_steps.hpp"
#include "session/runner/group_statistics.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

class BucketRunner final : public Runner {
 public:
  /// `epoch` is that of the transport's world.
  BucketRunner(std::shared_ptr<Transport> transport, const SessionOptions& options, std::uint32_t epoch = 0);

  void abort(const Error& error) noexcept override { transport_->abort(error); }
  [[nodiscard]] std::vector<Statistics> statistics() const override { return statistics_.groups(); }
  [[nodiscard]] Statistics totals() const override { return statistics_.totals(); }
  void reset_statistics() override { statistics_.reset(); }
  [[nodiscard]] observe::Knowledge known(const plan::Plan& plan) const override { return health_.known(plan); }

  void check_memory(const View& gradient, const std::string& what) override {
    memory::require_host_memory(gradient.data, what);
  }
  std::vector<std::string> agree(const plan::Plan& plan, bool weighted, std::uint64_t step, const std::string& parts,
                                 const std::string& beside) override;
  [[nodiscard]] std::size_t most_level() const noexcept override { return most_level_; }
  void start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
             const StepInfo& step) override;
  std::vector<Ended> advance(std::chrono::microseconds wait) override;
  [[nodiscard]] std::vector<int> nonfinite_ranks(std::span<const TensorMemory> memory, double scale,
                                                 std::uint64_t step) override;
  [[nodiscard]] std::shared_ptr<std::byte> scratch(std::uint64_t bytes) override {
    const auto block = std::make_shared<memory::Block>(bytes, memory::MemoryUse::copies);
    return {block, block->data()};
  }
  void broadcast(std::span<const View> values, int root, bool packed) override;
  void compare(std::span<const View> values, std::uint64_t step) override;
  [[nodiscard]] std::vector<std::uint64_t> hashes(std::span<const View> values) override;
  void fail(const Error& error) noexcept override {
    executors_.fail(error);
    small_.sums().give_up();
  }
  [[nodiscard]] exchange::Peers& peers() noexcept override { return peers_; }
  [[nodiscard]] HeldByRunner& held() noexcept override { return residuals_; }
  [[nodiscard]] Probes* probes() noexcept override { return &probes_; }
  [[nodiscard]] observe::PeerWaits* watch_peers() override;
  [[nodiscard]] SmallSteps* small() noexcept override { return &small_; }
  [[nodiscard]] StepUndo* undo() noexcept override { return &residuals_; }

 private:
  /// Returns the last level of codec = "auto" for which the page pool has room. Throws Error(out_of_memory) if it has
  /// no room for the plan's steps without any of its codecs.
  [[nodiscard]] std::size_t level_with_memory(const plan::Plan& plan) const;
  /// Takes the measurements of a bucket that come before its start.
  void look(BucketFlight& flight, const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step,
            const exchange::Task& task);

  std::shared_ptr<Transport> transport_;
  SessionOptions options_;
  std::optional<observe::PeerWaits> peer_waits_;  // if peers are watched
  GroupStatistics statistics_;
  ExecutorPair executors_;
  exchange::TransportPeers peers_;
  HostResiduals residuals_;
  std::size_t most_level_ = std::numeric_limits<std::size_t>::max();
  BucketCalls calls_;
  HostSmallSteps small_;
  HostProbes probes_;
  BucketHealth health_;
  SmallValueWatch small_values_;
  std::deque<BucketFlight> flights_;
};

}  // namespace gradwire::session
