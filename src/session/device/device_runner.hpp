// The runner of sessions over device memory: it enqueues all work on the device, in order with the caller's stream, and
// does not wait for it. Tensors stay where they are, unless a call needs those of a bucket in one array. Residuals lie
// contiguously, by bucket. Errors of enqueued work are reported in a later call.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/peers.hpp"
#include "exchange/stream/stream_device.hpp"
#include "session/device/device_calls.hpp"
#include "session/device/device_held.hpp"
#include "session/device/device_marks.hpp"
#include "session/device/device_node.hpp"
#include "session/device/device_pipeline.hpp"
#include "session/device/device_room.hpp"
#include "session/runner/group_statistics.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

class DeviceRunner final : public Runner, private DeviceSteps {
 public:
  /// Without `peers`, agreements go over the device's communicator. `nodes`: the node of each rank, as far as it is
  /// known (Transport::nodes). Throws Error(unsupported) for options that a device does not support.
  DeviceRunner(std::shared_ptr<exchange::StreamDevice> device, std::unique_ptr<exchange::Peers> peers,
               const SessionOptions& options, std::vector<std::uint32_t> nodes = {});
  ~DeviceRunner() override;

  void abort(const Error& error) noexcept override { device_->abort(error); }
  [[nodiscard]] std::vector<Statistics> statistics() const override { return statistics_.groups(); }
  [[nodiscard]] Statistics totals() const override { return statistics_.totals(); }
  void reset_statistics() override { statistics_.reset(); }

  void check_memory(const View& gradient, const std::string& what) override;
  std::vector<std::string> agree(const plan::Plan& plan, bool weighted, std::uint64_t step, const std::string& parts,
                                 const std::string& beside) override;
  void start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
             const StepInfo& step) override;
  std::vector<Ended> advance(std::chrono::microseconds wait) override;
  [[nodiscard]] std::vector<int> nonfinite_ranks(std::span<const TensorMemory> memory, double scale,
                                                 std::uint64_t step) override;
  [[nodiscard]] std::shared_ptr<std::byte> scratch(std::uint64_t bytes) override;
  void broadcast(std::span<const View> values, int root, bool packed) override;
  void compare(std::span<const View> values, std::uint64_t step) override;
  [[nodiscard]] std::vector<std::uint64_t> hashes(std::span<const View> values) override;
  void fail(const Error& error) noexcept override { device_->abort(error); }
  [[nodiscard]] exchange::Peers& peers() noexcept override { return node_.peers(); }
  [[nodiscard]] HeldByRunner& held() noexcept override { return held_; }
  [[nodiscard]] DeviceSteps* device() noexcept override { return this; }
  [[nodiscard]] StepUndo* undo() noexcept override { return &held_; }

 private:
  bool end_step(bool skipped) override;
  void settle() override;
  bool complete(std::uint64_t step, std::uint32_t bucket) override;
  void wait_complete(std::uint64_t step, std::uint32_t bucket) override;
  [[nodiscard]] bool waits_to_join(std::uint64_t step, std::uint32_t bucket) const override {
    return pipeline_.waits(step, bucket);
  }
  [[nodiscard]] bool capturing() override { return device_->capturing(); }
  [[nodiscard]] StepRoom& room() noexcept override { return *room_; }
  [[nodiscard]] std::optional<std::uint32_t> replayed_to() override;
  void set_step(std::uint64_t step) override;
  [[nodiscard]] DeviceMemory memory() const override { return room_->latest(); }

  std::shared_ptr<exchange::StreamDevice> device_;
  SessionOptions options_;
  DeviceNode node_;
  DeviceHeld held_;
  DeviceMarks marks_;
  GroupStatistics statistics_;
  DevicePipeline pipeline_;
  std::optional<DeviceCalls> calls_;  // set once there is device memory for the step, as the next one
  std::optional<DeviceRoom> room_;
  std::uint32_t* step_ = nullptr;                  // device memory
  kernels::DeviceStatus* probe_status_ = nullptr;  // for searches for NaN; in device memory
  std::uint32_t nonfinite_steps_ = 0;              // the device's count, as last seen
  bool captured_ = false;                          // a step was captured, and may be replayed
  bool followed_ = false;                          // follow_caller() was called since the step began
  std::vector<Ended> started_;
};

}  // namespace gradwire::session
