#include "session/device/device_runner.hpp"

#include <algorithm>
#include <utility>

#include "base/current_error.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/timeout.hpp"
#include "base/units.hpp"
#include "exchange/calls/device_status.hpp"
#include "session/runner/agreements.hpp"

namespace gradwire::session {
namespace {

using exchange::CurrentDevice;
using exchange::StreamBackend;

// Builds that cut chunks by another rule would wait for other messages than their peers send.
std::string chunks_text(const exchange::ChunkSize& chunks) {
  return "chunks on devices: " + std::to_string(chunks.bytes) + " bytes, at least " + std::to_string(chunks.per_shard) +
         " a shard\n";
}

}  // namespace

DeviceRunner::DeviceRunner(std::shared_ptr<exchange::StreamDevice> device, std::unique_ptr<exchange::Peers> peers,
                           const SessionOptions& options, std::vector<std::uint32_t> nodes)
    : Runner({.rank = device->backend().rank(),
              .world_size = device->backend().world_size(),
              .transport = device->name(),
              .checksum = false,  // kernels fill in no CRC
              .nodes = std::move(nodes),
              .knows_tiers = device->sums_in_nodes(),
              .packs_frames = false,
              .node_sums = device->sums_in_nodes(),
              .source = observe::add_source({.kind = observe::Source::Kind::session,
                                             .rank = device->backend().rank(),
                                             .world_size = device->backend().world_size()})}),
      device_(std::move(device)),
      options_(with_checked_timeout(options, "Session")),
      node_(*device_, std::move(peers), options_.timeout),
      held_(*device_, options_.timeout),
      marks_(*device_, info().rank),
      pipeline_(*device_, held_.residuals(), marks_, statistics_) {
  if (options.measure_error) {
    throw Error(ErrorCode::unsupported,
                "measure_error: a session over device memory cannot; measure with the gradients in host memory");
  }
  if (options.checksum.value_or(false)) {
    throw Error(ErrorCode::unsupported, "checksum: frames made on a device carry none; leave the option out");
  }
  const CurrentDevice current(*device_);
  device_->load_kernels();
  step_ = reinterpret_cast<std::uint32_t*>(device_->backend().acquire(sizeof(std::uint32_t)));
  probe_status_ = reinterpret_cast<kernels::DeviceStatus*>(device_->backend().acquire(sizeof(kernels::DeviceStatus)));
  device_->zero(step_, sizeof(std::uint32_t));
  calls_.emplace(*device_, options_.reduction, held_.residuals(), step_);
  room_.emplace(*device_, held_, pipeline_, *calls_, step_, options_.timeout);
}

// The destructor frees memory of the device, so it waits until no work uses this memory.
DeviceRunner::~DeviceRunner() {
  try {
    const CurrentDevice current(*device_);
    if (captured_) {
      device_->follow_caller();  // replays run on the caller's stream only
    }
    device_->wait(device_->mark(), options_.timeout);
    const DeviceMemory memory = room_->latest();
    log(LogLevel::info, "device memory of rank " + std::to_string(info().rank) + ": peak " +
                            format_bytes(memory.peak_bytes) + ", held " + format_bytes(memory.held_bytes) +
                            "; pinned host memory: " + format_bytes(memory.pinned_bytes));
  } catch (...) {
    const Error error = current_error();
    device_->abort(error);
  }
}

void DeviceRunner::check_memory(const View& gradient, const std::string& what) {
  if (gradient.count > 0) {
    const CurrentDevice current(*device_);
    exchange::check_view(*device_, gradient.data, gradient.dtype, what);
  }
}

std::vector<std::string> DeviceRunner::agree(const plan::Plan& plan, bool weighted, std::uint64_t step,
                                             const std::string& parts, const std::string& beside) {
  statistics_.resize(plan.groups.size());
  const CurrentDevice current(*device_);
  const bool in_windows = environment_flag("GRADWIRE_NODE_KERNEL");
  const std::string text = agreement_text(plan, weighted, step, !held_.residuals().empty(), parts) +
                           chunks_text(exchange::stream_chunks(info().world_size, plan.chunk_bytes)) +
                           "[device] join: " + std::to_string(plan.join_bytes) + " bytes\n" +
                           (in_windows ? "GRADWIRE_NODE_KERNEL: 1\n" : "");
  std::vector<std::string> texts = agree_on_plan(peers(), text, beside);
  node_.join(plan);
  pipeline_.join(plan.join_bytes);
  if (in_windows) {
    node_.open_windows(pipeline_.executor(), held_.remembers());
  }
  return texts;
}

void DeviceRunner::start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                         const StepInfo& step) {
  const CurrentDevice current(*device_);
  StreamBackend& backend = device_->backend();
  device_->arena().set_fixed(device_->capturing());
  device_->follow_caller();
  followed_ = true;
  marks_.begin_step(step.step);
  const DeviceCalls::Opened opened = calls_->open(plan, bucket, step);
  held_.residuals().decay(bucket.id, bucket.decay);
  pipeline_.add(calls_->prepare(backend, opened, plan, bucket, memory, step));
  started_.push_back({bucket.id, false});
}

std::vector<Runner::Ended> DeviceRunner::advance(std::chrono::microseconds /*wait*/) {
  const CurrentDevice current(*device_);
  device_->poll();
  exchange::check_device_status(*device_);
  if (!device_->capturing()) {
    marks_.check_timeout(options_.timeout);
  }
  room_->note();
  return std::exchange(started_, {});
}

bool DeviceRunner::end_step(bool skipped) {
  const CurrentDevice current(*device_);
  if (!skipped) {
    pipeline_.start_waiting();
    pipeline_.flush(true);
  }
  if (!followed_) {
    device_->follow_caller();
  }
  followed_ = false;
  device_->advance(step_);
  if (device_->capturing()) {
    device_->lead_caller();
    captured_ = true;
    device_->arena().fence();
    device_->arena().set_fixed(false);
    return false;  // nothing has run; its first replay may find NaN
  }
  device_->lead_caller_from(marks_.end_step());
  room_->note();
  if (held_.remembers()) {  // no later step may report this one's errors: the next world has its own device runner
    device_->wait_alone(device_->mark(), options_.timeout);  // the step counts, even if ranks have ended meanwhile
  }
  const std::uint32_t nonfinite = device_->nonfinite_steps();
  return std::exchange(nonfinite_steps_, nonfinite) != nonfinite;
}

void DeviceRunner::settle() {
  const CurrentDevice current(*device_);
  pipeline_.start_waiting();
  pipeline_.flush();
  device_->wait(device_->mark(), options_.timeout);
  device_->poll();
  exchange::check_device_status(*device_);
}

bool DeviceRunner::complete(std::uint64_t step, std::uint32_t bucket) {
  require_no_capture(*device_, "done");
  const CurrentDevice current(*device_);
  device_->poll();
  exchange::check_device_status(*device_);
  const auto mark = marks_.find(step, bucket);
  if (mark) {
    return device_->reached(*mark);
  }
  return marks_.ended(step);
}

void DeviceRunner::wait_complete(std::uint64_t step, std::uint32_t bucket) {
  require_no_capture(*device_, "wait");
  const CurrentDevice current(*device_);
  if (pipeline_.has(bucket)) {
    pipeline_.flush();
  }
  if (const auto mark = marks_.find(step, bucket)) {
    device_->wait(*mark, options_.timeout);
  }
  device_->poll();
  exchange::check_device_status(*device_);
}

}  // namespace gradwire::session
