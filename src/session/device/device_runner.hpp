// The runner of sessions over device memory: everything is enqueued on the device, in order with the caller's stream,
// and the host goes on. A bucket of several tensors is gathered into one run and scattered back; one tensor stays where
// it is. Residuals lie contiguously, by bucket. Errors of what was enqueued come to light in a later call.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "exchange/peers.hpp"
#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "session/device/device_residuals.hpp"
#include "session/runner.hpp"

namespace gradwire::session {

class DeviceRunner final : public Runner, private HeldByRunner, private DeviceSteps, private StepUndo {
 public:
  /// `peers` null: agreements go over the device's communicator. Error(unsupported) for options that a device has not.
  DeviceRunner(std::shared_ptr<exchange::StreamDevice> device, std::unique_ptr<exchange::Peers> peers,
               const SessionOptions& options);
  ~DeviceRunner() override;

  void abort(ErrorCode code, const std::string& message) noexcept override { device_->abort(code, message); }
  [[nodiscard]] std::vector<Statistics> statistics() const override;
  [[nodiscard]] Statistics totals() const override;
  void reset_statistics() override;

  void check_memory(const View& gradient, const std::string& what) override;
  std::vector<std::string> agree(const plan::Plan& plan, bool weighted, std::uint64_t step, const std::string& parts,
                                 const std::string& beside) override;
  void start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
             const StepInfo& step) override;
  std::vector<Ended> advance(std::chrono::microseconds wait) override;
  [[nodiscard]] std::vector<int> nonfinite_ranks(std::span<const TensorMemory> memory, double scale,
                                                 std::uint64_t step) override;
  [[nodiscard]] std::shared_ptr<std::byte> scratch(std::uint64_t bytes) override;
  void broadcast(std::span<const View> values, int root) override;
  void compare(std::span<const View> values, std::uint64_t step) override;
  [[nodiscard]] std::vector<std::uint64_t> hashes(std::span<const View> values) override;
  void fail(ErrorCode code, const std::string& message) noexcept override { device_->abort(code, message); }
  [[nodiscard]] exchange::Peers& peers() noexcept override { return *peers_; }
  [[nodiscard]] HeldByRunner& held() noexcept override { return *this; }
  [[nodiscard]] DeviceSteps* device() noexcept override { return this; }
  [[nodiscard]] StepUndo* undo() noexcept override { return this; }

 private:
  bool end_step(bool skipped) override;
  void settle() override;
  bool complete(std::uint64_t step, std::uint32_t bucket) override;
  void wait_complete(std::uint64_t step, std::uint32_t bucket) override;
  [[nodiscard]] bool capturing() override { return device_->capturing(); }
  void reserve(const plan::Plan& plan, const StepInfo& step) override;
  [[nodiscard]] std::optional<std::uint32_t> replayed_to() override;
  void set_step(std::uint64_t step) override;
  [[nodiscard]] DeviceMemory memory() const override;

  [[nodiscard]] std::vector<SavedState::Residual> save_residuals(const plan::Plan& plan) override;
  void load_residuals(exchange::ResidualStore residuals, const plan::Plan& plan) override;
  void scale_residuals(float factor) override;
  [[nodiscard]] std::uint64_t residual_bytes() override { return residuals_.bytes(); }

  void remember() override;
  void commit() override { residuals_.commit(); }
  void undo_step() override;

  using Point = exchange::StreamDevice::Point;
  using Clock = std::chrono::steady_clock;
  // One bucket whose collective is not all enqueued yet.
  struct Flight {
    std::uint32_t bucket;
    std::size_t group;
    std::shared_ptr<const exchange::StreamExecution> execution;
    std::byte* run = nullptr;     // of gathered tensors
    std::byte* powers = nullptr;  // of a preconditioned bucket's scale, a byte an element
    std::vector<kernels::CopyPiece> results = {};
    DType dtype = DType::f32;
    DeviceResiduals::Use residuals = {};
  };
  struct Mark {
    std::uint64_t step;
    std::uint32_t bucket;
    Point point;
  };
  struct Enqueued {  // a step
    std::uint64_t step;
    Point point;
    Clock::time_point when;
  };

  struct Opened {
    exchange::Resolved resolved;
    DeviceResiduals::Use residuals = {};
  };
  // What the bucket's collective is in this step; makes room for its residuals.
  [[nodiscard]] Opened open(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step);
  Flight enqueue(exchange::StreamBackend& backend, exchange::StreamExecutor& executor, const Opened& opened,
                 const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                 const StepInfo& step);
  // What the tensors' scales count as.
  static std::byte* measure_scale(exchange::StreamBackend& backend, const plan::Bucket& bucket,
                                  std::span<const TensorMemory> memory);
  static void close(exchange::StreamBackend& backend, const Flight& flight);
  void close_flights();
  void flush_pipeline();
  void check_timeout();
  void require_no_capture(const char* call);
  void note_memory();
  [[nodiscard]] std::optional<Point> find_mark(std::uint64_t step, std::uint32_t bucket) const;
  [[nodiscard]] bool any_nonfinite(std::span<const TensorMemory> memory);

  std::shared_ptr<exchange::StreamDevice> device_;
  SessionOptions options_;
  std::unique_ptr<exchange::Peers> peers_;
  std::unique_ptr<exchange::StreamExecutor> executor_;
  DeviceResiduals residuals_;
  std::uint32_t* step_ = nullptr;                  // device memory
  kernels::DeviceStatus* probe_status_ = nullptr;  // of looks for NaN; device memory
  std::uint32_t nonfinite_steps_ = 0;              // of the device, as last seen
  bool captured_ = false;                          // a step was, and may be replayed
  bool followed_ = false;                          // the caller's stream, since the step began
  bool remembers_ = false;                         // what a step changes, so that it can be undone
  std::uint64_t current_step_ = 0;
  std::deque<Flight> flights_;
  std::vector<Ended> started_;
  std::deque<Mark> marks_;         // of buckets of this step and the one before
  std::deque<Enqueued> enqueued_;  // steps that the device has not ended, as far as is known
  mutable Mutex statistics_mutex_;
  std::vector<Statistics> statistics_ GUARDED_BY(statistics_mutex_);
  Statistics before_reset_ GUARDED_BY(statistics_mutex_);  // of all groups
  DeviceMemory memory_ GUARDED_BY(statistics_mutex_);
};

}  // namespace gradwire::session
