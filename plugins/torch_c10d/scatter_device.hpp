// Enqueues the reduce-scatters of one rank on any device that enqueues messages.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "exchange/calls/device_status.hpp"
#include "exchange/stream/stream_call.hpp"
#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "plugins/torch_c10d/scatter_engine.hpp"

namespace gradwire::torch_c10d {

class DeviceScatter {
 public:
  DeviceScatter(std::unique_ptr<exchange::StreamDevice> device, CodecSpec codec)
      : device_(std::move(device)), executor_(device_->backend()), codec_(codec) {
    const exchange::CurrentDevice current(*device_);
    device_->load_kernels();
    step_ = reinterpret_cast<std::uint32_t*>(device_->backend().acquire(sizeof(std::uint32_t)));
    device_->zero(step_, sizeof(std::uint32_t));
  }

  /// Enqueues the call behind the device's caller, which follows it.
  void reduce_scatter(const ScatterCall& call) {
    const exchange::CurrentDevice current(*device_);
    device_->poll();
    exchange::check_device_status(*device_);
    exchange::StreamBackend& backend = device_->backend();
    const exchange::StreamCall resolved = exchange::make_stream_call(
        {.collective = exchange::Collective::reduce_scatter,
         .codec = codec_,
         .dtype = call.input.dtype,
         .count = call.input.count,
         .segments = std::vector<std::uint64_t>(static_cast<std::size_t>(backend.world_size()), call.output.count)},
        backend, std::nullopt);
    device_->follow_caller();
    executor_.run(resolved.resolved.schedule, exchange::make_stream_task(resolved, *device_,
                                                                         {.input = call.input.data,
                                                                          .output = call.output.data,
                                                                          .step = step_,
                                                                          .reduction = call.reduction,
                                                                          .factor = call.factor,
                                                                          .name = "reduce-scatter of FSDP"}));
    device_->advance(step_);
    device_->lead_caller();
  }

 private:
  std::unique_ptr<exchange::StreamDevice> device_;
  exchange::StreamExecutor executor_;
  CodecSpec codec_;
  std::uint32_t* step_ = nullptr;  // device memory: calls so far
};

}  // namespace gradwire::torch_c10d
