// The interface of a device for the stream executor: queues with events between them, memory in their order, codecs
// and messages. Everything is enqueued and nothing blocks, so that a whole collective can be captured into a graph. One
// rank, one thread at a time. Implementations: CUDA with NCCL, and the tests' simulation on host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"
#include "kernels/device/jobs.hpp"
#include "kernels/device/window_job.hpp"

namespace gradwire::exchange {

class StreamBackend {
 public:
  /// What a library does inside a node has a queue of its own, since it uses other links than messages between nodes.
  enum class Queue : std::uint8_t { compute, communication, node };
  /// A point in a queue; valid until kLiveEvents more have been recorded there.
  using Event = std::uint32_t;
  static constexpr Event kLiveEvents = 8;

  StreamBackend() = default;
  StreamBackend(const StreamBackend&) = delete;
  StreamBackend& operator=(const StreamBackend&) = delete;
  virtual ~StreamBackend() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int world_size() const noexcept = 0;

  // Memory follows the order of the compute queue; work of another queue that uses it waits for an event of the compute
  // queue recorded after acquire(), and the compute queue for that work before release().
  /// Device memory, 256-byte aligned, for work behind the current work of the compute queue. Error(out_of_memory) names
  /// the size and, during capture, says that the memory was not reserved.
  [[nodiscard]] virtual std::byte* acquire(std::size_t bytes) = 0;
  /// Releases the memory: its last use comes before later work of the compute queue.
  virtual void release(std::byte* memory) noexcept = 0;

  [[nodiscard]] virtual Event record(Queue queue) = 0;
  /// Makes work enqueued on `queue` from now on start after the event.
  virtual void wait(Queue queue, Event event) = 0;

  /// Names, for profilers, what is enqueued until the matching end_range(). Ranges nest.
  virtual void begin_range(const char* /*name*/) {}
  virtual void end_range() noexcept {}

  // These run on the compute queue.
  /// Writes the headers of jobs at once, ahead of the jobs that fill these frames and say `opened`.
  virtual void open_headers(std::span<const kernels::HeaderJob> jobs) = 0;
  virtual void encode(const kernels::EncodeJob& job) = 0;
  virtual void decode(const kernels::DecodeJob& job) = 0;
  virtual void reduce(const kernels::ReduceJob& job) = 0;
  // The same for several jobs in one launch. Jobs of one call have the same codec in all frames: a lossy one without
  // topk. None is without elements, and those that fill frames say `opened`. `list`: kernels::list_bytes() of device
  // memory.
  virtual void open_all(std::span<const kernels::HeaderJob> jobs, std::uint64_t* /*list*/) { open_headers(jobs); }
  virtual void encode_all(std::span<const kernels::EncodeJob> jobs, std::uint64_t* /*list*/) {
    for (const kernels::EncodeJob& job : jobs) {
      encode(job);
    }
  }
  virtual void decode_all(std::span<const kernels::DecodeJob> jobs, std::uint64_t* /*list*/) {
    for (const kernels::DecodeJob& job : jobs) {
      decode(job);
    }
  }
  virtual void reduce_all(std::span<const kernels::ReduceJob> jobs, std::uint64_t* /*list*/) {
    for (const kernels::ReduceJob& job : jobs) {
      reduce(job);
    }
  }
  /// The kernel waits for those of the other ranks, which must enqueue theirs in the same order.
  virtual void all_reduce_windows(const kernels::WindowJob& job) = 0;
  /// values += factor (or *device_factor) x residual, which is zero afterwards; where it is zero, values stay as they
  /// are (so does -0). The factor is rounded to the type of `values` first, f16 and bf16 work in f32.
  virtual void fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
                    std::uint64_t count) = 0;
  /// to <- from x factor / divisor (or the doubles behind the device pointers, unless null), converted; each operation
  /// rounds once in the working type: f64 where both are f64, otherwise f32. `from` may be `to` where the dtypes are
  /// equal.
  virtual void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
                       const double* device_factor, double divisor, const double* device_divisor) = 0;
  /// Computes powers[i] so that element i of a scale is 2^-powers[i] of the largest of its tile, as in
  /// kernels/scale.hpp. `scale` has the `count` elements of a whole bucket.
  virtual void measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers) = 0;
  virtual void rescale(const kernels::RescaleJob& job) = 0;
  /// sums[0] and sums[1] += the words of kernels/array_hash.hpp of `count` elements of 32 bits.
  virtual void hash(const void* elements, std::uint64_t count, std::uint32_t* sums) = 0;
  virtual void gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) = 0;
  virtual void scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run, DType run_dtype) = 0;
  /// Writes words to device memory; `words` may change once it returns, and a captured graph writes these again.
  virtual void write(std::span<const std::uint64_t> words, std::uint64_t* to) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// totals[0] <- sum of the doubles behind `weights` (host array of device pointers, one a rank), in order;
  /// totals[1] <- 1 / sum; totals[2] <- own / sum. A weight below 0 or not finite, or a sum that is not above 0, makes
  /// all three NaN, and so the result.
  virtual void sum_weights(std::span<const double* const> weights, double own, double* totals) = 0;
  virtual void store_weight(double weight, double* to) = 0;

  // These run on the communication queue. Messages between begin_group and end_group are one operation that cannot
  // deadlock; every rank makes the same groups in the same order.
  virtual void begin_group() = 0;
  virtual void send(std::span<const std::byte> bytes, int peer) = 0;
  virtual void receive(std::span<std::byte> bytes, int peer) = 0;
  /// Sums in place, in the library's own order: f32, f64, f16 and bf16. It needs a group of its own.
  virtual void all_reduce(void* values, DType dtype, std::uint64_t count) = 0;
  // These two run on the node's queue, in groups like messages. Every rank enqueues them and the messages in the same
  // order.
  /// Sums over the ranks of this rank's node, in the library's own order. The rank of place p gets elements
  /// [p * each, (p + 1) * each) of `from`, the one of the last place `rest` more. It needs a group of its own.
  /// Error(unsupported) unless StreamDevice::sums_in_nodes().
  virtual void sum_in_node(const void* /*from*/, void* /*to*/, DType /*dtype*/, std::uint64_t /*each*/,
                           std::uint64_t /*rest*/) {
    throw Error(ErrorCode::unsupported, "this device does not sum inside nodes");
  }
  /// Place p of this rank's node sends bytes [p * bytes, (p + 1) * bytes) of `all` to all others, which receive them
  /// there. As sum_in_node() otherwise.
  virtual void gather_in_node(void* /*all*/, std::uint64_t /*bytes*/) {
    throw Error(ErrorCode::unsupported, "this device does not gather inside nodes");
  }
  virtual void end_group() = 0;
};

}  // namespace gradwire::exchange
