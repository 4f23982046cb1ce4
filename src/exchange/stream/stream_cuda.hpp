// The stream executor's backend over CUDA: its queues are streams of our own, ordered by events, memory comes from a
// pool in the order of the compute stream, codecs are our kernels, and messages are NCCL's or MPI's.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "exchange/stream/stream_backend.hpp"
#include "kernels/device/operations.hpp"
#include "memory/cuda_pool.hpp"
#include "transport/device_messages.hpp"

namespace gradwire::exchange {

/// What a device's work may take from the job's own kernels.
struct CudaShare {
  std::uint32_t most_blocks = 0;  // of 256 threads, of each of our kernels; 0: as many as its work has parts
  bool high_priority = true;      // waiting blocks of our streams start before those of other streams
};

/// A stream of our own, for which other streams wait only when they are told to.
class CudaStream {
 public:
  /// Makes the stream on the current device, with the highest or the lowest priority that it has. The lowest is that of
  /// streams which ask for none.
  explicit CudaStream(bool high_priority);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// An event that does not record times.
class CudaEvent {
 public:
  CudaEvent();
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }
  void record(cudaStream_t stream);

 private:
  cudaEvent_t event_ = nullptr;
};
/// Makes later work of `stream` come after the event.
void wait_for(cudaStream_t stream, const CudaEvent& event);

/// All calls need the device to be current on which the backend was made.
class CudaBackend final : public StreamBackend {
 public:
  /// `pool` and `messages` must outlive it.
  CudaBackend(memory::CudaPool& pool, transport::DeviceMessages& messages, const CudaShare& share)
      : pool_(pool),
        messages_(messages),
        compute_(share.high_priority),
        communication_(share.high_priority),
        high_priority_(share.high_priority),
        most_blocks_(share.most_blocks) {}

  /// Makes the stream of Queue::node, which most jobs do not need: streams share a few connections to the device.
  void open_node_queue();
  [[nodiscard]] bool has_node_queue() const noexcept { return node_ != nullptr; }
  [[nodiscard]] cudaStream_t stream(Queue queue) const noexcept {
    if (queue == Queue::node && node_ != nullptr) {
      return node_->get();
    }
    return queue == Queue::compute ? compute_.get() : communication_.get();
  }

  [[nodiscard]] int rank() const noexcept override { return messages_.rank(); }
  [[nodiscard]] int world_size() const noexcept override { return messages_.world_size(); }
  [[nodiscard]] std::byte* acquire(std::size_t bytes) override { return pool_.acquire(bytes); }
  void release(std::byte* memory) noexcept override { pool_.release(memory); }
  [[nodiscard]] Event record(Queue queue) override;
  void wait(Queue queue, Event event) override;
  void begin_range(const char* name) override;
  void end_range() noexcept override;
  void open_headers(std::span<const kernels::HeaderJob> jobs) override;
  void encode(const kernels::EncodeJob& job) override;
  void decode(const kernels::DecodeJob& job) override;
  void reduce(const kernels::ReduceJob& job) override;
  void open_all(std::span<const kernels::HeaderJob> jobs, std::uint64_t* list) override;
  void encode_all(std::span<const kernels::EncodeJob> jobs, std::uint64_t* list) override;
  void decode_all(std::span<const kernels::DecodeJob> jobs, std::uint64_t* list) override;
  void reduce_all(std::span<const kernels::ReduceJob> jobs, std::uint64_t* list) override;
  void all_reduce_windows(const kernels::WindowJob& job) override;
  void fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
            std::uint64_t count) override;
  void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
               const double* device_factor, double divisor, const double* device_divisor) override;
  void measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers) override;
  void rescale(const kernels::RescaleJob& job) override;
  void hash(const void* elements, std::uint64_t count, std::uint32_t* sums) override;
  void gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) override;
  void scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run, DType run_dtype) override;
  void write(std::span<const std::uint64_t> words, std::uint64_t* to) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void sum_weights(std::span<const double* const> weights, double own, double* totals) override;
  void store_weight(double weight, double* to) override;
  void begin_group() override { messages_.begin_group(); }
  void send(std::span<const std::byte> bytes, int peer) override;
  void receive(std::span<std::byte> bytes, int peer) override;
  void all_reduce(void* values, DType dtype, std::uint64_t count) override;
  void sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest) override;
  void gather_in_node(void* all, std::uint64_t bytes) override;
  void end_group() override { messages_.end_group(); }

  /// The policy's bound on blocks of a kernel; 0: none.
  [[nodiscard]] std::uint32_t most_blocks() const noexcept { return most_blocks_; }

 private:
  [[nodiscard]] kernels::KernelQueue kernel_queue() const noexcept { return {compute_.get(), most_blocks_}; }

  memory::CudaPool& pool_;
  transport::DeviceMessages& messages_;
  CudaStream compute_;
  CudaStream communication_;
  std::unique_ptr<CudaStream> node_;
  bool high_priority_;
  std::uint32_t most_blocks_;
  // An event is recorded again only after the waits for it have been enqueued; a wait keeps the event's state of that
  // moment. The number is a power of two, so that places stay in order where event numbers wrap around.
  static constexpr Event kEvents = 16;
  static_assert(kEvents > kLiveEvents);
  static constexpr std::size_t kQueues = 3;
  std::array<std::array<CudaEvent, kEvents>, kQueues> events_;
  std::array<Event, kQueues> recorded_{};
};

}  // namespace gradwire::exchange
