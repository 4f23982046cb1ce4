// What the stream executor asks of a device: two queues with events between them, memory in their order, codecs and
// messages. Everything is enqueued and nothing blocks, so that a whole collective can be captured into a graph. One
// rank, one thread at a time. Implementations: CUDA with NCCL, and the tests' simulation on host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gradwire/dtype.hpp"
#include "kernels/device/jobs.hpp"

namespace gradwire::collective {

class StreamBackend {
 public:
  enum class Queue : std::uint8_t { compute, communication };
  /// A point in a queue; valid until the end of the call that recorded it.
  using Event = std::uint32_t;

  StreamBackend() = default;
  StreamBackend(const StreamBackend&) = delete;
  StreamBackend& operator=(const StreamBackend&) = delete;
  virtual ~StreamBackend() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int world_size() const noexcept = 0;

  /// Device memory, 256-byte aligned, for work enqueued from now on, on either queue. Error(out_of_memory) names the
  /// size and, during capture, that it was not reserved.
  [[nodiscard]] virtual std::byte* acquire(std::size_t bytes) = 0;
  /// Its last use is before what both queues have enqueued so far ends.
  virtual void release(std::byte* memory) noexcept = 0;

  [[nodiscard]] virtual Event record(Queue queue) = 0;
  /// Work enqueued on `queue` from now on starts after the event.
  virtual void wait(Queue queue, Event event) = 0;

  // On the compute queue.
  virtual void encode(const kernels::EncodeJob& job) = 0;
  virtual void decode(const kernels::DecodeJob& job) = 0;
  virtual void reduce(const kernels::ReduceJob& job) = 0;
  /// values += factor x residual, which is zero afterwards.
  virtual void fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
                    std::uint64_t count) = 0;
  /// to <- from x factor / divisor (or *device_divisor), converted; each operation rounds once in the working type.
  virtual void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
                       double divisor, const double* device_divisor) = 0;
  virtual void gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) = 0;
  virtual void scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run, DType run_dtype) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// *total <- sum of the doubles behind `weights` (host array of device pointers), in order.
  virtual void sum_weights(std::span<const double* const> weights, double* total) = 0;
  virtual void store_weight(double weight, double* to) = 0;

  // On the communication queue. Between begin_group and end_group in one step that cannot deadlock; every rank makes
  // the same groups in the same order.
  virtual void begin_group() = 0;
  virtual void send(std::span<const std::byte> bytes, int peer) = 0;
  virtual void receive(std::span<std::byte> bytes, int peer) = 0;
  /// Sum in place, in the library's own order. In a group of its own.
  virtual void all_reduce(void* values, DType dtype, std::uint64_t count) = 0;
  virtual void end_group() = 0;
};

}  // namespace gradwire::collective
