// A session's device over CUDA: it joins the backend's streams to the caller's by events, and gives places in the
// compute stream that the host can poll, staged copies, and errors of CUDA and of the messages.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "exchange/stream/stream_cuda.hpp"
#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/window_calls.hpp"
#include "memory/cuda_pinned.hpp"
#include "memory/cuda_pool.hpp"

namespace gradwire::exchange {

/// Makes a device current for the calling thread, and restores the earlier one at its end.
class OnCudaDevice {
 public:
  explicit OnCudaDevice(int device);
  ~OnCudaDevice();
  OnCudaDevice(const OnCudaDevice&) = delete;
  OnCudaDevice& operator=(const OnCudaDevice&) = delete;

 private:
  int previous_;
};

class CudaDevice final : public StreamDevice {
 public:
  /// `caller` is the stream of `device` with the caller's work; it stays the caller's. Error(unsupported) with CUDA's
  /// text where there is no driver or no GPU; Error(invalid_argument) for a device that is not there or a stream of
  /// another one.
  CudaDevice(std::unique_ptr<transport::DeviceMessages> messages, int device, cudaStream_t caller,
             const CudaShare& share = {});
  ~CudaDevice() override;

  [[nodiscard]] StreamBackend& backend() noexcept override { return *backend_; }
  [[nodiscard]] cudaStream_t stream(StreamBackend::Queue queue) const noexcept { return backend_->stream(queue); }
  [[nodiscard]] transport::DeviceMessages& messages() noexcept { return *messages_; }
  [[nodiscard]] memory::Arena& arena() noexcept override { return pool_->arena(); }
  [[nodiscard]] std::string name() const override { return messages_->name(); }
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept override;

  [[nodiscard]] bool sums_in_nodes() const noexcept override { return messages_->sums_in_nodes(); }
  void set_nodes(const Tiers& nodes) override;
  [[nodiscard]] std::string open_windows(const memory::AllGather& all_gather,
                                         std::chrono::milliseconds timeout) override;
  [[nodiscard]] const WindowCalls* windows() const noexcept override { return calls_.get(); }
  /// Takes windows that are known to work, whose kernels are loaded.
  void adopt_windows(std::unique_ptr<WindowCalls> calls);

  /// Calls body(scratch, stream) for work on the communication queue, between the earlier and the later work of the
  /// compute queue.
  template <class Body>
  void communicate_with(std::size_t bytes, const Body& body) {
    using Queue = StreamBackend::Queue;
    std::byte* scratch = backend_->acquire(bytes);
    backend_->wait(Queue::communication, backend_->record(Queue::compute));
    body(std::span(scratch, bytes), stream(Queue::communication));
    backend_->wait(Queue::compute, backend_->record(Queue::communication));
    backend_->release(scratch);
  }

  /// Replaces the caller's stream by another one of the same device.
  void set_caller(cudaStream_t stream) noexcept { caller_ = stream; }

  [[nodiscard]] int enter() override;
  void leave(int previous) noexcept override;
  void follow_caller() override;
  void lead_caller() override;
  void lead_caller_from(Point point) override;
  [[nodiscard]] bool capturing() override;

  [[nodiscard]] Point mark() override;
  [[nodiscard]] bool reached(Point point) override;
  void wait(Point point, std::chrono::milliseconds timeout) override { wait(point, timeout, true); }
  void wait_alone(Point point, std::chrono::milliseconds timeout) override { wait(point, timeout, false); }
  void download(std::span<std::byte> to, const void* from, std::chrono::milliseconds timeout) override;
  void upload(void* to, std::span<const std::byte> from) override;
  void zero(void* data, std::size_t bytes) override;
  void load_kernels() override;
  void advance(std::uint32_t* step) override;

  [[nodiscard]] kernels::DeviceStatus& status() noexcept override { return words_->status; }
  [[nodiscard]] std::uint32_t* nonfinite() noexcept override { return nonfinite_; }
  [[nodiscard]] std::uint32_t nonfinite_steps() noexcept override;
  void check(const void* data, const std::string& what) override;
  void poll() override;
  void abort(const Error& error) noexcept override;
  void end_messages(std::chrono::milliseconds timeout) override;

 private:
  void wait(Point point, std::chrono::milliseconds timeout, bool polls);
  struct Mark {
    Point point;
    std::unique_ptr<CudaEvent> event;
  };
  struct Words {
    kernels::DeviceStatus status;
    std::uint32_t nonfinite_steps = 0;
  };
  struct Staged {
    Point point;  // reached when the copy from it has ended
    std::byte* memory;
  };
  void sweep();
  void poll_messages();
  [[nodiscard]] cudaStream_t compute() const noexcept { return backend_->stream(StreamBackend::Queue::compute); }

  std::unique_ptr<transport::DeviceMessages> messages_;
  int device_;
  cudaStream_t caller_;
  std::unique_ptr<memory::CudaPool> pool_;
  std::unique_ptr<memory::PinnedPool> pinned_;
  std::unique_ptr<CudaBackend> backend_;
  std::unique_ptr<CudaEvent> joint_;    // between the caller's stream and ours
  Words* words_ = nullptr;              // pinned host memory, which only kernels write
  std::uint32_t* nonfinite_ = nullptr;  // device memory
  std::deque<Mark> marks_;              // marks that are not known to be reached, oldest first
  std::vector<std::unique_ptr<CudaEvent>> spare_;
  std::deque<Staged> staged_;
  Point next_point_ = 1;
  bool messages_over_ = false;
  std::unique_ptr<WindowCalls> calls_;
  std::atomic<WindowCalls*> to_abort_ = nullptr;  // the same, for other threads
};

/// The number of devices; Error(unsupported) with CUDA's text where there is no driver, or none.
[[nodiscard]] int cuda_devices();
/// The device that is current for this thread; throws as cuda_devices() does.
[[nodiscard]] int current_cuda_device();

}  // namespace gradwire::exchange
