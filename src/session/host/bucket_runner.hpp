// The runner of sessions over host memory: buckets go to the host executor over a transport.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/host/host_executor.hpp"
#include "exchange/peers.hpp"
#include "gradwire/session.hpp"
#include "memory/device_pointer.hpp"
#include "plan/plan.hpp"
#include "session/host/small_sums.hpp"
#include "session/runner.hpp"
#include "transport/foreground.hpp"

namespace gradwire::session {

class BucketRunner final : public Runner, private HeldByRunner, private Probes, private SmallSteps, private StepUndo {
 public:
  /// `epoch`: of the world that the transport is of.
  BucketRunner(std::shared_ptr<Transport> transport, const SessionOptions& options, std::uint32_t epoch = 0);

  void abort(ErrorCode code, const std::string& message) noexcept override { transport_->abort(code, message); }
  [[nodiscard]] std::vector<Statistics> statistics() const override;
  [[nodiscard]] Statistics totals() const override;
  void reset_statistics() override;
  [[nodiscard]] observe::Knowledge known(const plan::Plan& plan) const override;

  void check_memory(const View& gradient, const std::string& what) override {
    memory::require_host_memory(gradient.data, what);
  }
  std::vector<std::string> agree(const plan::Plan& plan, bool weighted, std::uint64_t step, const std::string& parts,
                                 const std::string& beside) override;
  void start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
             const StepInfo& step) override;
  std::vector<Ended> advance(std::chrono::microseconds wait) override;
  [[nodiscard]] std::vector<int> nonfinite_ranks(std::span<const TensorMemory> memory, double scale,
                                                 std::uint64_t step) override;
  [[nodiscard]] std::shared_ptr<std::byte> scratch(std::uint64_t bytes) override {
    return {new std::byte[bytes], std::default_delete<std::byte[]>()};
  }
  void broadcast(std::span<const View> values, int root) override;
  void compare(std::span<const View> values, std::uint64_t step) override;
  [[nodiscard]] std::vector<std::uint64_t> hashes(std::span<const View> values) override;
  void fail(ErrorCode code, const std::string& message) noexcept override {
    foreground_.note(false, false);
    executor_.fail(code, message);
    background_.fail(code, message);
    small_.give_up();
  }
  [[nodiscard]] exchange::Peers& peers() noexcept override { return peers_; }
  [[nodiscard]] HeldByRunner& held() noexcept override { return *this; }
  [[nodiscard]] Probes* probes() noexcept override { return this; }
  [[nodiscard]] observe::PeerWaits* watch_peers() override;
  [[nodiscard]] SmallSteps* small() noexcept override { return this; }
  [[nodiscard]] StepUndo* undo() noexcept override { return this; }

 private:
  void advance_eagerly();  // until a bucket ends
  [[nodiscard]] bool takes(const plan::Plan& plan, std::span<const BucketChoice> choices) const override;
  [[nodiscard]] bool has_to_add() const override { return !residuals_.empty(); }
  bool reduce(const plan::Plan& plan, std::span<const TensorMemory> memory, const StepInfo& step) override;

  [[nodiscard]] bool has_native(DType dtype) const override;
  [[nodiscard]] bool ends_in_call(const plan::Plan& plan, std::span<const BucketChoice> choices) const override;
  void know_link(const exchange::Cluster& cluster) override;
  double time_exchange(int to, int from, std::uint64_t bytes) override;
  double time_reduction(const plan::Plan& trial, const TensorMemory& memory, const TrialStep& step) override;

  [[nodiscard]] std::vector<SavedState::Residual> save_residuals(const plan::Plan& /*plan*/) override;
  void load_residuals(exchange::ResidualStore residuals, const plan::Plan& /*plan*/) override {
    residuals_ = std::move(residuals);
    if (remembers_) {
      residuals_.remember();
    }
  }
  void scale_residuals(float factor) override { residuals_.multiply(factor); }
  [[nodiscard]] std::uint64_t residual_bytes() override { return residuals_.bytes(); }

  void remember() override {
    remembers_ = true;
    residuals_.remember();
  }
  void commit() override { residuals_.commit(); }
  void undo_step() override { residuals_.undo(); }

  class RestoreOnExit;

  struct Flight {
    std::uint32_t bucket;
    std::size_t group;
    bool background;
    std::shared_ptr<exchange::Execution> execution;
    // For measured errors: the same reduction, exactly, over a copy of the inputs.
    std::shared_ptr<exchange::Execution> exact;
    std::vector<std::byte> exact_values;
    codec::TensorList results;  // the gradients, to be read
    std::unique_ptr<exchange::BucketResiduals> residuals = nullptr;
    exchange::ResidualUse use = {};
    std::optional<choice::QualitySample> sample = {};
    std::optional<choice::GradientNorms> norms = {};
  };
  // What a bucket asks of the collective, but for the residuals that are held of it.
  [[nodiscard]] exchange::Request request(const plan::Plan& plan, const plan::Bucket& bucket,
                                          const policy::Level& level, const StepInfo& step) const;
  [[nodiscard]] exchange::RankGroup group(const plan::Plan& plan) const;
  // Whether it is then the transport's own sum.
  [[nodiscard]] bool sums_natively(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step) const;
  // Encodes some tiles of what is about to be reduced, and looks at what that drops.
  static choice::QualitySample sample_quality(const exchange::Task& task);
  // For whoever observes: one bucket in turn a second, and what memory there is.
  void look_at_health(const plan::Plan& plan, const exchange::Task& task,
                      const std::optional<choice::QualitySample>& sampled);
  // Now and then, of some tiles: whether the codec loses their small values for ever, which is told once.
  void look_at_small_values(const plan::Plan& plan, const plan::Bucket& bucket, const exchange::Task& task);
  // Of some tiles: what a rank hands in, and what comes out.
  static double squared_norm(const codec::TensorList& tensors);
  void start_exact(Flight& flight, const plan::Plan& plan, const plan::Bucket& bucket, const exchange::Task& task);
  void collect(Flight& flight);
  bool advance_foreground(std::chrono::microseconds wait);
  // Moves both executors, the background behind what sends.
  void advance_executors(std::chrono::microseconds wait);

  std::shared_ptr<Transport> transport_;
  SessionOptions options_;
  std::optional<observe::PeerWaits> peer_waits_;  // where they are watched
  exchange::HostExecutor executor_;
  exchange::HostExecutor background_;
  transport::Foreground foreground_;             // the former, to whoever else shares the link
  std::chrono::steady_clock::time_point moved_;  // when the former did something, or had nothing to send
  exchange::TransportPeers peers_;
  exchange::ResidualStore residuals_;
  bool remembers_ = false;
  std::deque<Flight> flights_;
  SmallSums small_;
  std::uint32_t next_look_ = 0;  // a bucket
  bool told_small_values_ = false;
  std::optional<std::chrono::steady_clock::time_point> looked_;
  mutable std::mutex statistics_mutex_;  // of what follows
  std::vector<Statistics> statistics_;
  Statistics before_reset_;                                // of all groups
  std::map<std::uint32_t, choice::QualitySample> health_;  // by bucket
  std::optional<observe::Knowledge::Memory> memory_;
};

}  // namespace gradwire::session
