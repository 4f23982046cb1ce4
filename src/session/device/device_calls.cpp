#include "session/device/device_calls.hpp"

#include <string>
#include <utility>
#include <vector>

#include "session/runner/level_at.hpp"

namespace gradwire::session {
namespace {

using exchange::StreamBackend;
using exchange::StreamTask;

// Measures the scales of the bucket's tensors. Returns memory of the device with one byte for each element.
std::byte* measure_scale(StreamBackend& backend, const plan::Bucket& bucket, std::span<const TensorMemory> memory) {
  std::vector<kernels::CopyPiece> pieces;
  for (const plan::Bucket::Part& part : bucket.parts) {
    if (part.count > 0) {  // the scale is only read
      pieces.push_back({const_cast<float*>(memory[part.tensor].scale), part.count, part.offset});
    }
  }
  std::byte* powers = backend.acquire(bucket.count);
  std::byte* run = nullptr;
  const auto* scale = static_cast<const float*>(pieces[0].tensor);
  if (pieces.size() > 1) {  // a tile may have parts of several tensors
    run = backend.acquire(bucket.count * sizeof(float));
    backend.gather(pieces, DType::f32, run, DType::f32);
    scale = reinterpret_cast<const float*>(run);
  }
  backend.measure_scale(scale, bucket.count, reinterpret_cast<std::uint8_t*>(powers));
  if (run != nullptr) {
    backend.release(run);
  }
  return powers;
}

}  // namespace

exchange::StreamCall DeviceCalls::resolve(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step,
                                          const exchange::HeldResiduals& held) const {
  exchange::NativeSum native = plan.deterministic ? exchange::NativeSum{} : exchange::kStreamNativeSum;
  native.in_nodes = plan.options.node_sums;
  const policy::Level level = level_at(bucket, step);
  const policy::Stage& stage = level.stage;
  return exchange::make_stream_call({.algorithm = level.algorithm,
                                     .codec = stage.codec,
                                     .second_hop = stage.second_hop,
                                     .intra = stage.intra,
                                     .dtype = bucket.dtype,
                                     .count = bucket.count,
                                     .weighted = step.weighted,
                                     .feedback = stage.error_feedback,
                                     .preconditioned = bucket.preconditioned,
                                     .held = held,
                                     .native = native},
                                    device_.backend(), plan.chunk_bytes, plan.tiers);
}

DeviceCalls::Opened DeviceCalls::open(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step) {
  Opened opened{.call = resolve(plan, bucket, step, residuals_.held(bucket.id))};
  opened.residuals = residuals_.begin(bucket.id, opened.call.resolved.call.residuals);
  tables_.reserve(bucket);
  return opened;
}

DeviceCalls::Opened DeviceCalls::reserve(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step,
                                         bool folds) {
  Opened opened{.call = resolve(plan, bucket, step, residuals_.held(bucket.id, folds))};
  opened.residuals = residuals_.reserve(bucket.id, opened.call.resolved.call.residuals);
  tables_.reserve(bucket);
  return opened;
}

DeviceCalls::Prepared DeviceCalls::prepare(StreamBackend& backend, const Opened& opened, const plan::Plan& plan,
                                           const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                                           const StepInfo& step) {
  DeviceFlight flight{
      .step = step.step, .bucket = bucket.id, .group = bucket.group, .execution = nullptr, .dtype = bucket.dtype};
  flight.residuals = opened.residuals;
  if (opened.call.resolved.call.preconditioned && bucket.count > 0) {
    flight.powers = measure_scale(backend, bucket, memory);
  }
  StreamTask task =
      exchange::make_stream_task(opened.call, device_,
                                 {.step = step_,
                                  .reduction = reduction_,
                                  .weight = step.weight,
                                  .bucket = bucket.id,
                                  .local_residual = opened.residuals.ranges.local,
                                  .owner_residual = opened.residuals.ranges.owner,
                                  .node_residual = opened.residuals.ranges.node.data,
                                  .powers = reinterpret_cast<const std::uint8_t*>(flight.powers),
                                  .in_windows = true,
                                  .name = "bucket " + std::to_string(bucket.id) + " (" +
                                          plan.groups[bucket.group].name + ") of step " + std::to_string(step.step)});
  give_memory(backend, bucket, memory, opened.call, task, flight);
  return {std::move(flight), {opened.call.resolved.schedule, std::move(task)}};
}

// Tells the task where its tensors lie.
void DeviceCalls::give_memory(StreamBackend& backend, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                              const exchange::StreamCall& call, StreamTask& task, DeviceFlight& flight) {
  std::vector<kernels::CopyPiece> inputs;
  std::vector<kernels::CopyPiece> outputs;
  for (const plan::Bucket::Part& part : bucket.parts) {
    if (part.count > 0) {
      const TensorMemory& tensor = memory[part.tensor];
      inputs.push_back({tensor.zero ? nullptr : tensor.gradient.data, part.count, part.offset});
      outputs.push_back({tensor.gradient.data, part.count, part.offset});
    }
  }
  if (inputs.size() < 2) {
    task.input.data = inputs.empty() ? nullptr : inputs[0].tensor;
    task.output.data = outputs.empty() ? nullptr : outputs[0].tensor;
    return;
  }
  const exchange::PiecesOfCall pieces = exchange::pieces_of_call(call, task, backend);
  if (pieces.input || pieces.output) {
    const DeviceTables::Tables tables = tables_.write(backend, bucket.id, inputs, outputs);
    task.input_pieces = pieces.input ? tables.input : kernels::PieceTable{};
    task.output_pieces = pieces.output ? tables.output : kernels::PieceTable{};
  }
  if (pieces.input && pieces.output) {
    return;
  }
  flight.run = backend.acquire(bucket.count * element_bytes(bucket.dtype));
  if (!pieces.input) {
    backend.gather(inputs, bucket.dtype, flight.run, bucket.dtype);
    task.input.data = flight.run;
  }
  if (!pieces.output) {
    task.output.data = flight.run;
    flight.results = std::move(outputs);
  }
}

void DeviceCalls::close(StreamBackend& backend, const DeviceFlight& flight) {
  if (flight.run != nullptr) {
    if (!flight.results.empty()) {
      backend.scatter(flight.results, flight.dtype, flight.run, flight.dtype);
    }
    backend.release(flight.run);
  }
  if (flight.powers != nullptr) {
    backend.release(flight.powers);
  }
}

}  // namespace gradwire::session
