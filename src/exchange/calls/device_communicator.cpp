#include "exchange/calls/device_communicator.hpp"

#include <algorithm>
#include <utility>

#include "base/current_error.hpp"
#include "base/timeout.hpp"
#include "exchange/calls/device_status.hpp"
#include "exchange/default_codecs.hpp"
#include "exchange/stream/dry_run.hpp"
#include "exchange/stream/stream_call.hpp"
#include "security/job_key.hpp"
#include "wire/frame.hpp"

namespace gradwire::exchange {

namespace {

void check_call(const ConstView& input, const View& output, const CallOptions& options) {
  const auto reject = [](const std::string& what) { throw Error(ErrorCode::invalid_argument, "all_reduce: " + what); };
  if (element_bytes(input.dtype) == 0) {
    reject("unknown dtype " + std::to_string(static_cast<int>(input.dtype)) + "; use f32, f16, bf16 or f64");
  }
  if (input.count != output.count || input.dtype != output.dtype) {
    reject("input is " + std::string(to_string(input.dtype)) + " x " + std::to_string(input.count) + ", output " +
           std::string(to_string(output.dtype)) + " x " + std::to_string(output.count) + "; they must be equal");
  }
  if (input.count > 0 && (input.data == nullptr || output.data == nullptr)) {
    reject("null data with count " + std::to_string(input.count));
  }
  const auto* from = static_cast<const std::byte*>(input.data);
  const auto* to = static_cast<const std::byte*>(output.data);
  const std::uint64_t bytes = input.count * element_bytes(input.dtype);
  if (from != to && from < to + bytes && to < from + bytes) {
    reject("input and output overlap; give separate memory, or the same place exactly");
  }
  if (options.algorithm == Algorithm::hierarchical) {
    throw Error(ErrorCode::unsupported,
                "all_reduce: the algorithm hierarchical is not for device memory in this version; write two_shot");
  }
  if (options.codec.values == codec::kPackedId ||
      options.second_hop.value_or(options.codec).values == codec::kPackedId) {
    throw Error(ErrorCode::unsupported,
                "all_reduce: exact+zstd packs frames on the cores of hosts; over device memory write exact");
  }
  if (options.feedback != nullptr) {
    throw Error(ErrorCode::unsupported, "all_reduce: error feedback over device memory needs a session");
  }
}

}  // namespace

DeviceCommunicator::DeviceCommunicator(std::shared_ptr<StreamDevice> device, const CommunicatorOptions& options)
    : device_(std::move(device)),
      options_(with_checked_timeout(options, "Communicator")),
      executor_(std::make_unique<StreamExecutor>(device_->backend())) {
  security::refuse_key("a communicator over device memory", security::kStageOnHost);
  if (options.checksum.value_or(false)) {
    throw Error(ErrorCode::unsupported, "checksum: frames made on a device carry none; leave the option out");
  }
  const CurrentDevice current(*device_);
  device_->load_kernels();
  step_ = reinterpret_cast<std::uint32_t*>(device_->backend().acquire(sizeof(std::uint32_t)));
  device_->zero(step_, sizeof(std::uint32_t));
  device_->lead_caller();  // graph replays read it on the caller's stream
}

DeviceCommunicator::~DeviceCommunicator() {
  try {
    const CurrentDevice current(*device_);
    wait_for_device();
  } catch (...) {
    const Error error = current_error();
    device_->abort(error);
  }
}

template <class Call>
void DeviceCommunicator::guarded(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (...) {
    const Error error = current_error();
    device_->abort(error);
    throw Error(error);
  }
}

void DeviceCommunicator::require_no_capture(const char* call) {
  if (device_->capturing()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) + ": not while the stream is being captured into a graph; nothing runs until then");
  }
}

std::shared_ptr<const StreamExecution> DeviceCommunicator::enqueue(StreamBackend& backend, StreamExecutor& executor,
                                                                   const ConstView& input, const View& output,
                                                                   const CallOptions& options) const {
  const StreamCall call = make_stream_call(
      {.algorithm = options.algorithm,
       .codec = options.codec,
       .second_hop = options.second_hop.value_or(default_second_hop(options.codec, backend.world_size())),
       .dtype = input.dtype,
       .count = input.count,
       .weighted = options.weight.has_value(),
       .native = kStreamNativeSum},
      backend, options.chunk_bytes);
  const int terms =
      (options.reduction == Reduction::mean ? wire::kTermMean : 0) | (options.weight ? wire::kTermWeighted : 0);
  return executor.run(call.resolved.schedule, make_stream_task(call, *device_,
                                                               {.input = input.data,
                                                                .output = output.data,
                                                                .step = step_,
                                                                .reduction = options.reduction,
                                                                .weight = options.weight.value_or(1.0),
                                                                .terms = static_cast<std::uint8_t>(terms),
                                                                .name = "an all_reduce"}));
}

Statistics DeviceCommunicator::all_reduce(ConstView input, View output, const CallOptions& options) {
  Statistics statistics;
  guarded([&] {
    const CurrentDevice current(*device_);
    check_call(input, output, options);
    if (input.count > 0) {
      check_view(*device_, input.data, input.dtype, "all_reduce: the input");
      check_view(*device_, output.data, output.dtype, "all_reduce: the output");
    }
    device_->poll();
    check_device_status(*device_);
    const bool capturing = device_->capturing();
    captured_ = captured_ || capturing;
    device_->arena().set_fixed(capturing);
    device_->follow_caller();
    statistics = enqueue(device_->backend(), *executor_, input, output, options)->statistics();
    device_->advance(step_);
    device_->lead_caller();
  });
  return statistics;
}

void DeviceCommunicator::reserve(std::uint64_t count, DType dtype, const CallOptions& options) {
  const CurrentDevice current(*device_);
  const View sized{step_, count, dtype};  // only its size is read; the address stands for any in device memory
  check_call(sized, sized, options);
  require_no_capture("reserve");
  guarded([&] {
    reserve_memory_of(device_->arena(), rank(), world_size(), [&](NullBackend& backend) {
      StreamExecutor executor(backend);
      static_cast<void>(enqueue(backend, executor, sized, sized, options));
    });
  });
}

// Graph replays run on the caller's stream only, so that stream must be waited for too.
void DeviceCommunicator::wait_for_device() {
  if (captured_) {
    device_->follow_caller();
  }
  device_->wait(device_->mark(), options_.timeout);
}

void DeviceCommunicator::wait() {
  const CurrentDevice current(*device_);
  require_no_capture("wait");
  guarded([&] {
    wait_for_device();
    device_->poll();
    check_device_status(*device_);
  });
}

}  // namespace gradwire::exchange
