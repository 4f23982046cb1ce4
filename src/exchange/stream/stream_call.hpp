// A call over a device: resolved once, and made into a task of the stream executor. Sessions, communicators and
// drop-ins all build their tasks here, so that they cut the same chunks and name the same ranges.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "exchange/resolved_call.hpp"
#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "exchange/tiers.hpp"

namespace gradwire::exchange {

struct StreamCall {
  CallRequest request;
  Resolved resolved;
  std::shared_ptr<const Tiers> tiers;  // null: ranks are not known to share nodes
};

/// Resolves a call of the backend's rank. Chunks are those of devices, of `chunk_bytes` where that is asked for, and an
/// algorithm that is left open is two_shot. `tiers` are the device's, where it sums inside nodes. It throws the errors
/// of resolve().
[[nodiscard]] StreamCall make_stream_call(CallRequest request, const StreamBackend& backend,
                                          std::optional<std::uint64_t> chunk_bytes,
                                          std::shared_ptr<const Tiers> tiers = nullptr);

/// What a task has beside its call: device memory, which must stay valid until the enqueued work has run, and numbers.
/// Members that are left out are as in StreamTask.
struct StreamArguments {
  // The whole bucket, or this rank's segment: the output of a reduce-scatter, the input of an all-gather.
  const void* input = nullptr;  // null: zeros
  void* output = nullptr;
  const std::uint32_t* step = nullptr;
  Reduction reduction = Reduction::sum;
  double weight = 1.0;
  double factor = 1.0;
  const double* device_factor = nullptr;
  std::uint32_t bucket = 0;
  DeviceRange<float> local_residual = {};
  DeviceRange<float> owner_residual = {};
  float* node_residual = nullptr;
  const std::uint8_t* powers = nullptr;  // of all elements of the bucket
  std::uint8_t terms = 0;
  bool in_windows = false;
  std::string name;
};

/// Whether the kernels of an all-reduce read its input, and write its output, where tensors lie apart
/// (StreamTask::input_pieces). Ranks may differ in this.
struct PiecesOfCall {
  bool input = false;
  bool output = false;
};
/// `task` is the task of the call, with its residuals.
[[nodiscard]] PiecesOfCall pieces_of_call(const StreamCall& call, const StreamTask& task, const StreamBackend& backend);

/// Makes the task of a call. Kernels note bad frames and NaN with `device`.
[[nodiscard]] StreamTask make_stream_task(const StreamCall& call, StreamDevice& device, StreamArguments arguments);

}  // namespace gradwire::exchange
