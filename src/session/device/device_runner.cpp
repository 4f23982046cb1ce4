#include "session/device/device_runner.hpp"

#include <algorithm>
#include <utility>

#include "base/current_error.hpp"
#include "base/log.hpp"
#include "base/timeout.hpp"
#include "base/units.hpp"
#include "exchange/calls/device_status.hpp"
#include "session/agreements.hpp"

namespace gradwire::session {
namespace {

using exchange::CurrentDevice;
using exchange::StreamBackend;

}  // namespace

DeviceRunner::DeviceRunner(std::shared_ptr<exchange::StreamDevice> device, std::unique_ptr<exchange::Peers> peers,
                           const SessionOptions& options)
    : Runner({.rank = device->backend().rank(),
              .world_size = device->backend().world_size(),
              .transport = device->name(),
              .checksum = false,  // kernels fill in no CRC
              .source = observe::add_source({.kind = observe::Source::Kind::session,
                                             .rank = device->backend().rank(),
                                             .world_size = device->backend().world_size()})}),
      device_(std::move(device)),
      options_(with_checked_timeout(options, "Session")),
      peers_(std::move(peers)),
      executor_(std::make_unique<exchange::StreamExecutor>(device_->backend())),
      residuals_(*device_, info().rank, info().world_size) {
  if (options.measure_error) {
    throw Error(ErrorCode::unsupported,
                "measure_error: a session over device memory cannot; measure with the gradients in host memory");
  }
  if (options.checksum.value_or(false)) {
    throw Error(ErrorCode::unsupported, "checksum: frames made on a device carry none; leave the option out");
  }
  if (peers_ == nullptr) {
    peers_ = std::make_unique<exchange::DevicePeers>(*device_, options_.timeout);
  }
  const CurrentDevice current(*device_);
  device_->load_kernels();
  step_ = reinterpret_cast<std::uint32_t*>(device_->backend().acquire(sizeof(std::uint32_t)));
  probe_status_ = reinterpret_cast<kernels::DeviceStatus*>(device_->backend().acquire(sizeof(kernels::DeviceStatus)));
  device_->zero(step_, sizeof(std::uint32_t));
}

// Memory goes back to the device: nothing may use it any more.
DeviceRunner::~DeviceRunner() {
  try {
    const CurrentDevice current(*device_);
    if (captured_) {
      device_->follow_caller();  // replays are there only
    }
    device_->wait(device_->mark(), options_.timeout);
    log(LogLevel::info, "device memory of rank " + std::to_string(info().rank) + ": peak " +
                            format_bytes(memory_.peak_bytes) + ", held " + format_bytes(memory_.held_bytes) +
                            "; pinned host memory: " + format_bytes(memory_.pinned_bytes));
  } catch (...) {
    const Error error = current_error();
    device_->abort(error.code(), error.what());
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
  {
    const MutexLock lock(statistics_mutex_);
    statistics_.resize(plan.groups.size());
  }
  const CurrentDevice current(*device_);
  return agree_on_plan(*peers_, agreement_text(plan, weighted, step, !residuals_.empty(), parts), beside);
}

DeviceRunner::Opened DeviceRunner::open(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step) {
  const policy::Stage now = policy::stage_at(bucket.stages, step.step);
  const policy::Stage stage = step.flush ? policy::exact_stage(now) : now;
  Opened opened{.resolved = exchange::resolve(
                    {.algorithm = bucket.algorithm,
                     .codec = stage.codec,
                     .second_hop = stage.second_hop,
                     .dtype = bucket.dtype,
                     .count = bucket.count,
                     .weighted = step.weighted,
                     .feedback = stage.error_feedback,
                     .preconditioned = bucket.preconditioned,
                     .held = residuals_.held(bucket.id),
                     .chunk_bytes = {plan.chunk_bytes.value_or(exchange::stream_chunk_bytes(info().world_size)),
                                     plan.chunk_bytes.has_value()},
                     .native = plan.deterministic ? exchange::NativeSum{} : exchange::kStreamNativeSum},
                    {info().rank, info().world_size})};
  opened.residuals = residuals_.begin(bucket.id, opened.resolved.call.residuals);
  return opened;
}

std::byte* DeviceRunner::measure_scale(StreamBackend& backend, const plan::Bucket& bucket,
                                       std::span<const TensorMemory> memory) {
  std::vector<kernels::CopyPiece> pieces;
  for (const plan::Bucket::Part& part : bucket.parts) {
    if (part.count > 0) {  // it is only read
      pieces.push_back({const_cast<float*>(memory[part.tensor].scale), part.count, part.offset});
    }
  }
  std::byte* powers = backend.acquire(bucket.count);
  std::byte* run = nullptr;
  const auto* scale = static_cast<const float*>(pieces[0].tensor);
  if (pieces.size() > 1) {  // a tile may hold the ends of several tensors
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

DeviceRunner::Flight DeviceRunner::enqueue(StreamBackend& backend, exchange::StreamExecutor& executor,
                                           const Opened& opened, const plan::Plan& plan, const plan::Bucket& bucket,
                                           std::span<const TensorMemory> memory, const StepInfo& step) {
  Flight flight{.bucket = bucket.id, .group = bucket.group, .execution = nullptr, .dtype = bucket.dtype};
  std::vector<kernels::CopyPiece> inputs;
  for (const plan::Bucket::Part& part : bucket.parts) {
    if (part.count > 0) {
      const TensorMemory& tensor = memory[part.tensor];
      inputs.push_back({tensor.zero ? nullptr : tensor.gradient.data, part.count, part.offset});
      flight.results.push_back({tensor.gradient.data, part.count, part.offset});
    }
  }
  const void* input = nullptr;
  void* output = nullptr;
  if (inputs.size() == 1) {
    input = inputs[0].tensor;
    output = flight.results[0].tensor;
  } else if (!inputs.empty()) {
    flight.run = backend.acquire(bucket.count * element_bytes(bucket.dtype));
    backend.gather(inputs, bucket.dtype, flight.run, bucket.dtype);
    input = output = flight.run;
  }
  flight.residuals = opened.residuals;
  if (opened.resolved.call.preconditioned && bucket.count > 0) {
    flight.powers = measure_scale(backend, bucket, memory);
  }
  flight.execution = executor.start(
      opened.resolved.schedule, {.input = {input, 0, bucket.count},
                                 .output = {output, 0, bucket.count},
                                 .count = bucket.count,
                                 .dtype = bucket.dtype,
                                 .call = opened.resolved.call,
                                 .reduction = options_.reduction,
                                 .weight = step.weight,
                                 .bucket = bucket.id,
                                 .step = step_,
                                 .status = &device_->status(),
                                 .local_residual = opened.residuals.local,
                                 .owner_residual = opened.residuals.owner,
                                 .powers = {reinterpret_cast<const std::uint8_t*>(flight.powers), 0, bucket.count},
                                 .name = "bucket " + std::to_string(bucket.id) + " (" + plan.groups[bucket.group].name +
                                         ") of step " + std::to_string(step.step)});
  return flight;
}

void DeviceRunner::start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                         const StepInfo& step) {
  const CurrentDevice current(*device_);
  StreamBackend& backend = device_->backend();
  device_->arena().set_fixed(device_->capturing());
  device_->follow_caller();
  followed_ = true;
  current_step_ = step.step;
  const Opened opened = open(plan, bucket, step);
  residuals_.decay(bucket.id, bucket.decay);
  flights_.push_back(enqueue(backend, *executor_, opened, plan, bucket, memory, step));
  started_.push_back({bucket.id, false});
  close_flights();
}

// What comes behind a bucket's collective, for all that are enqueued to their end.
void DeviceRunner::close_flights() {
  while (!flights_.empty() && flights_.front().execution->enqueued()) {
    Flight& flight = flights_.front();
    close(device_->backend(), flight);
    residuals_.end(device_->backend(), flight.bucket, flight.residuals);
    if (!device_->capturing()) {
      marks_.push_back({current_step_, flight.bucket, device_->mark()});
    }
    {
      const MutexLock lock(statistics_mutex_);
      statistics_[flight.group].add(flight.execution->statistics());
    }
    flights_.pop_front();
  }
}

void DeviceRunner::close(StreamBackend& backend, const Flight& flight) {
  if (flight.run != nullptr) {
    backend.scatter(flight.results, flight.dtype, flight.run, flight.dtype);
    backend.release(flight.run);
  }
  if (flight.powers != nullptr) {
    backend.release(flight.powers);
  }
}

void DeviceRunner::flush_pipeline() {
  executor_->finish();
  close_flights();
}

std::vector<Runner::Ended> DeviceRunner::advance(std::chrono::microseconds /*wait*/) {
  const CurrentDevice current(*device_);
  device_->poll();
  exchange::check_device_status(*device_);
  check_timeout();
  note_memory();
  return std::exchange(started_, {});
}

void DeviceRunner::check_timeout() {
  if (device_->capturing()) {
    return;
  }
  while (!enqueued_.empty() && device_->reached(enqueued_.front().point)) {
    enqueued_.pop_front();
  }
  if (!enqueued_.empty() && Clock::now() - enqueued_.front().when > options_.timeout) {
    throw Error(ErrorCode::timeout, "rank " + std::to_string(info().rank) + ": the device has not ended step " +
                                        std::to_string(enqueued_.front().step) + " for " +
                                        format_duration(options_.timeout) +
                                        ": are all ranks alive, and do they make the same calls?");
  }
}

bool DeviceRunner::end_step(bool skipped) {
  const CurrentDevice current(*device_);
  if (!skipped) {
    flush_pipeline();
  }
  if (!followed_) {
    device_->follow_caller();
  }
  followed_ = false;
  device_->advance(step_);
  device_->lead_caller();
  if (device_->capturing()) {
    captured_ = true;
    device_->arena().fence();
    device_->arena().set_fixed(false);
    return false;  // its first replay may find some
  }
  enqueued_.push_back({current_step_, device_->mark(), Clock::now()});
  while (!marks_.empty() && marks_.front().step + 1 < current_step_) {
    marks_.pop_front();
  }
  note_memory();
  if (remembers_) {  // no later step may tell of this one: the next world has a device runner of its own
    device_->wait_alone(device_->mark(), options_.timeout);  // the step counts, whoever has ended meanwhile
  }
  const std::uint32_t nonfinite = device_->nonfinite_steps();
  return std::exchange(nonfinite_steps_, nonfinite) != nonfinite;
}

void DeviceRunner::settle() {
  const CurrentDevice current(*device_);
  flush_pipeline();
  device_->wait(device_->mark(), options_.timeout);
  device_->poll();
  exchange::check_device_status(*device_);
}

void DeviceRunner::require_no_capture(const char* call) {
  if (device_->capturing()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) + ": not while the stream is being captured into a graph; nothing runs until then");
  }
}

bool DeviceRunner::complete(std::uint64_t step, std::uint32_t bucket) {
  require_no_capture("done");
  const CurrentDevice current(*device_);
  device_->poll();
  exchange::check_device_status(*device_);
  const auto mark = find_mark(step, bucket);
  if (mark) {
    return device_->reached(*mark);
  }
  return step < current_step_;
}

std::optional<DeviceRunner::Point> DeviceRunner::find_mark(std::uint64_t step, std::uint32_t bucket) const {
  for (const Mark& mark : marks_) {
    if (mark.step == step && mark.bucket == bucket) {
      return mark.point;
    }
  }
  for (const Enqueued& ended : enqueued_) {
    if (ended.step == step) {
      return ended.point;
    }
  }
  return std::nullopt;
}

void DeviceRunner::wait_complete(std::uint64_t step, std::uint32_t bucket) {
  require_no_capture("wait");
  const CurrentDevice current(*device_);
  if (std::any_of(flights_.begin(), flights_.end(), [=](const Flight& flight) { return flight.bucket == bucket; })) {
    flush_pipeline();
  }
  if (const auto mark = find_mark(step, bucket)) {
    device_->wait(*mark, options_.timeout);
  }
  device_->poll();
  exchange::check_device_status(*device_);
}

void DeviceRunner::note_memory() {
  const memory::Footprint footprint = device_->arena().footprint();
  const MutexLock lock(statistics_mutex_);
  memory_ = {footprint.bytes_in_use, footprint.peak_bytes, footprint.held_bytes, device_->pinned_bytes()};
}

std::vector<Statistics> DeviceRunner::statistics() const {
  const MutexLock lock(statistics_mutex_);
  return statistics_;
}

Statistics DeviceRunner::totals() const {
  const MutexLock lock(statistics_mutex_);
  Statistics totals = before_reset_;
  for (const Statistics& group : statistics_) {
    totals.add(group);
  }
  return totals;
}

void DeviceRunner::reset_statistics() {
  const MutexLock lock(statistics_mutex_);
  for (Statistics& group : statistics_) {
    before_reset_.add(std::exchange(group, {}));
  }
}

DeviceMemory DeviceRunner::memory() const {
  const MutexLock lock(statistics_mutex_);
  return memory_;
}

}  // namespace gradwire::session
