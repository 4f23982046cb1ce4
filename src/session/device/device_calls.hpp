// Enqueues a bucket on a device. Kernels read and write several tensors by a table of them; where a call needs
// contiguous memory (exchange::pieces_of_call), they are gathered before it, or scattered behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exchange/stream/stream_call.hpp"
#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "session/device/device_residuals.hpp"
#include "session/device/device_tables.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

/// One bucket whose collective is not completely enqueued yet.
struct DeviceFlight {
  std::uint64_t step;
  std::uint32_t bucket;
  std::size_t group;
  std::shared_ptr<const exchange::StreamExecution> execution;
  std::byte* run = nullptr;                      // the gathered tensors, if the call needs them so
  std::byte* powers = nullptr;                   // the scale of a preconditioned bucket, one byte for each element
  std::vector<kernels::CopyPiece> results = {};  // to which `run` is scattered
  DType dtype = DType::f32;
  DeviceResiduals::Use residuals = {};
};

class DeviceCalls {
 public:
  /// `device` and `residuals` must outlive this. `step` is the word in device memory that holds the step.
  DeviceCalls(exchange::StreamDevice& device, Reduction reduction, DeviceResiduals& residuals, std::uint32_t* step)
      : device_(device), reduction_(reduction), residuals_(residuals), step_(step), tables_(device) {}

  struct Opened {
    exchange::StreamCall call;
    DeviceResiduals::Use residuals = {};
  };
  /// Resolves the bucket's collective in this step, and makes room for its residuals and for a table of its tensors.
  [[nodiscard]] Opened open(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step);
  /// Does the same for a later step, which finds the residuals that are held now, or with `folds` wherever there is
  /// room for any.
  [[nodiscard]] Opened reserve(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step, bool folds);
  struct Prepared {
    DeviceFlight flight;  // without its execution
    exchange::StreamExecutor::Call call;
  };
  /// Enqueues the work that precedes the bucket's collective, and returns the call that starts it.
  [[nodiscard]] Prepared prepare(exchange::StreamBackend& backend, const Opened& opened, const plan::Plan& plan,
                                 const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                                 const StepInfo& step);
  /// Enqueues the work that follows the bucket's collective.
  static void close(exchange::StreamBackend& backend, const DeviceFlight& flight);

 private:
  [[nodiscard]] exchange::StreamCall resolve(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step,
                                             const exchange::HeldResiduals& held) const;
  void give_memory(exchange::StreamBackend& backend, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                   const exchange::StreamCall& call, exchange::StreamTask& task, DeviceFlight& flight);

  exchange::StreamDevice& device_;
  Reduction reduction_;
  DeviceResiduals& residuals_;
  std::uint32_t* step_;
  DeviceTables tables_;
};

}  // namespace gradwire::session
