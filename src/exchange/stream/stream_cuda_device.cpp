#include "exchange/stream/stream_cuda_device.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/awake_time.hpp"
#include "base/end_wait.hpp"
#include "base/units.hpp"
#include "kernels/device/operations.hpp"
#include "kernels/device/status.hpp"
#include "kernels/device/window_operations.hpp"
#include "memory/cuda_check.hpp"

namespace gradwire::exchange {
namespace {

using memory::cuda_check;

constexpr std::size_t kStagingBytes = std::size_t{4} << 20;
constexpr std::size_t kNodeScratchBytes = std::size_t{8} << 20;

}  // namespace

OnCudaDevice::OnCudaDevice(int device) : previous_(device) {
  cudaGetDevice(&previous_);
  cuda_check(cudaSetDevice(device), "choosing device " + std::to_string(device));
}

OnCudaDevice::~OnCudaDevice() { cudaSetDevice(previous_); }

int cuda_devices() {
  int count = 0;
  cuda_check(cudaGetDeviceCount(&count), "looking for GPUs (cudaGetDeviceCount)");
  return count;
}

int current_cuda_device() {
  static_cast<void>(cuda_devices());
  int device = 0;
  cuda_check(cudaGetDevice(&device), "asking for the current device");
  return device;
}

CudaDevice::CudaDevice(std::unique_ptr<transport::DeviceMessages> messages, int device, cudaStream_t caller,
                       const CudaShare& share)
    : messages_(std::move(messages)), device_(device), caller_(caller) {
  if (const int count = cuda_devices(); device < 0 || device >= count) {
    throw Error(ErrorCode::invalid_argument,
                "device " + std::to_string(device) + " is not there; this process sees " + std::to_string(count));
  }
  const OnCudaDevice current(device_);
  int streams = device_;
#if CUDART_VERSION >= 12080  // older toolkits cannot tell a stream's device
  if (caller_ != nullptr) {
    cuda_check(cudaStreamGetDevice(caller_, &streams), "asking for the device of the stream");
  }
#endif
  if (streams != device_) {
    throw Error(ErrorCode::invalid_argument, "the stream belongs to device " + std::to_string(streams) +
                                                 " but the communicator to device " + std::to_string(device_) +
                                                 "; make the stream with that device current");
  }
  pool_ = std::make_unique<memory::CudaPool>(device_);
  pinned_ = std::make_unique<memory::PinnedPool>(device_);
  backend_ = std::make_unique<CudaBackend>(*pool_, *messages_, share);
  joint_ = std::make_unique<CudaEvent>();
  words_ = new (pinned_->acquire(sizeof(Words))) Words;
  constexpr std::size_t kNoteBytes = kernels::kNoteWords * sizeof(std::uint32_t);
  nonfinite_ = reinterpret_cast<std::uint32_t*>(pool_->acquire(kNoteBytes));
  zero(nonfinite_, kNoteBytes);
}

// Work that is still under way uses the pool, so the destructor waits for it.
CudaDevice::~CudaDevice() {
  try {
    const OnCudaDevice current(device_);
    const EndWait ending;
    wait(mark(), std::chrono::duration_cast<std::chrono::milliseconds>(end_budget().left()));
  } catch (const std::exception& error) {
    abort(Error(ErrorCode::aborted, error.what()));
    cudaStreamSynchronize(stream(StreamBackend::Queue::communication));
    if (backend_->has_node_queue()) {
      cudaStreamSynchronize(stream(StreamBackend::Queue::node));
    }
    cudaStreamSynchronize(compute());
  }
}

std::uint64_t CudaDevice::pinned_bytes() const noexcept { return pinned_->bytes() + messages_->pinned_bytes(); }

void CudaDevice::set_nodes(const Tiers& nodes) {
  const int rank = messages_->rank();
  backend_->open_node_queue();
  communicate_with(kNodeScratchBytes, [&](std::span<std::byte> scratch, cudaStream_t stream) {
    messages_->join_node(nodes.node_of(rank), nodes.place_of(rank), scratch, stream);
  });
}

int CudaDevice::enter() {
  int previous = device_;
  cuda_check(cudaGetDevice(&previous), "asking for the current device");
  if (previous != device_) {
    cuda_check(cudaSetDevice(device_), "choosing device " + std::to_string(device_));
  }
  return previous;
}

void CudaDevice::leave(int previous) noexcept {
  if (previous != device_) {
    cudaSetDevice(previous);
  }
}

void CudaDevice::follow_caller() {
  joint_->record(caller_);
  wait_for(compute(), *joint_);
}

void CudaDevice::lead_caller() {
  joint_->record(compute());
  wait_for(caller_, *joint_);
}

void CudaDevice::lead_caller_from(Point point) {
  if (marks_.empty() || marks_.back().point != point) {
    lead_caller();
  } else {
    wait_for(caller_, *marks_.back().event);
  }
}

bool CudaDevice::capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(caller_, &status), "asking whether the stream is being captured");
  if (status == cudaStreamCaptureStatusInvalidated) {
    throw Error(ErrorCode::invalid_argument,
                "the capture of the stream is invalid: something was called in it that cannot be captured");
  }
  return status == cudaStreamCaptureStatusActive;
}

StreamDevice::Point CudaDevice::mark() {
  sweep();
  std::unique_ptr<CudaEvent> event;
  if (spare_.empty()) {
    event = std::make_unique<CudaEvent>();
  } else {
    event = std::move(spare_.back());
    spare_.pop_back();
  }
  event->record(compute());
  marks_.push_back({next_point_, std::move(event)});
  return next_point_++;
}

void CudaDevice::sweep() {
  while (!marks_.empty()) {
    const cudaError_t state = cudaEventQuery(marks_.front().event->get());
    if (state == cudaErrorNotReady) {
      break;
    }
    cuda_check(state,
               "rank " + std::to_string(messages_->rank()) + ": work on device " + std::to_string(device_) + " failed");
    spare_.push_back(std::move(marks_.front().event));
    marks_.pop_front();
  }
  const Point open = marks_.empty() ? next_point_ : marks_.front().point;
  while (!staged_.empty() && staged_.front().point < open) {
    pinned_->release(staged_.front().memory);
    staged_.pop_front();
  }
}

bool CudaDevice::reached(Point point) {
  sweep();
  return marks_.empty() || point < marks_.front().point;
}

void CudaDevice::wait(Point point, std::chrono::milliseconds timeout, bool polls) {
  AwakeTime time;
  while (!reached(point)) {
    if (polls) {
      poll_messages();
    }
    const auto waited = time.waited();
    if (waited > timeout) {
      throw Error(ErrorCode::timeout,
                  "rank " + std::to_string(messages_->rank()) + ": device " + std::to_string(device_) +
                      " did not end what was enqueued on it in " + format_duration(timeout) + "; its " +
                      messages_->name() + " communicator has " + std::to_string(messages_->world_size()) +
                      " ranks: are all alive, and do they make the same calls?",
                  ErrorCause::world);
    }
    pause_after(waited);
  }
}

void CudaDevice::download(std::span<std::byte> to, const void* from, std::chrono::milliseconds timeout) {
  for (std::size_t done = 0; done < to.size();) {
    const std::size_t bytes = std::min(kStagingBytes, to.size() - done);
    std::byte* staging = pinned_->acquire(bytes);
    cuda_check(
        cudaMemcpyAsync(staging, static_cast<const std::byte*>(from) + done, bytes, cudaMemcpyDeviceToHost, compute()),
        "copying " + std::to_string(bytes) + " bytes from the device");
    const Point point = mark();
    staged_.push_back({point, staging});  // in use until the copy ends, in case this wait times out
    wait(point, timeout);
    std::memcpy(to.data() + done, staging, bytes);
    done += bytes;
  }
}

void CudaDevice::upload(void* to, std::span<const std::byte> from) {
  for (std::size_t done = 0; done < from.size();) {
    const std::size_t bytes = std::min(kStagingBytes, from.size() - done);
    std::byte* staging = pinned_->acquire(bytes);
    std::memcpy(staging, from.data() + done, bytes);
    cuda_check(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, staging, bytes, cudaMemcpyHostToDevice, compute()),
               "copying " + std::to_string(bytes) + " bytes to the device");
    staged_.push_back({mark(), staging});
    done += bytes;
  }
}

void CudaDevice::zero(void* data, std::size_t bytes) {
  cuda_check(cudaMemsetAsync(data, 0, bytes, compute()), "clearing " + std::to_string(bytes) + " bytes");
}

void CudaDevice::load_kernels() {
  kernels::load_kernels();
  kernels::load_status_kernels();
  kernels::load_window_kernels();
}

void CudaDevice::advance(std::uint32_t* step) {
  kernels::advance_step(step, compute());
  kernels::count_nonfinite(nonfinite_, &words_->nonfinite_steps, compute());
}

std::uint32_t CudaDevice::nonfinite_steps() noexcept {
  return std::atomic_ref(words_->nonfinite_steps).load(std::memory_order_relaxed);
}

void CudaDevice::check(const void* data, const std::string& what) {
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, data), "asking what memory " + what + " is");
  const bool usable = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  if (!usable) {
    throw Error(ErrorCode::invalid_argument, what + " is in host memory but this session works on device " +
                                                 std::to_string(device_) + "; give memory of that device");
  }
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != device_) {
    throw Error(ErrorCode::invalid_argument, what + " is in memory of device " + std::to_string(attributes.device) +
                                                 " but this session works on device " + std::to_string(device_));
  }
}

void CudaDevice::poll() {
  poll_messages();
  if (!capturing()) {
    sweep();
  }
}

void CudaDevice::abort(const Error& error) noexcept {
  if (WindowCalls* calls = to_abort_.load(); calls != nullptr) {
    calls->abort();
  }
  messages_->abort(error);
}

void CudaDevice::poll_messages() {
  if (calls_ != nullptr) {
    calls_->check();
  }
  if (!messages_over_) {
    messages_->poll();
  }
}

void CudaDevice::end_messages(std::chrono::milliseconds timeout) {
  using Queue = StreamBackend::Queue;
  messages_over_ = true;
  backend_->wait(Queue::compute, backend_->record(Queue::communication));
  if (backend_->has_node_queue()) {
    backend_->wait(Queue::compute, backend_->record(Queue::node));
  }
  wait(mark(), timeout);
}

}  // namespace gradwire::exchange
