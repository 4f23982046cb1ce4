// The operations of a device, as functions that enqueue kernels on a stream. Nothing blocks, allocates or synchronises,
// so that all of it can be captured into a graph. Types are plain; pointers are device memory unless said otherwise
// (kernels/device/jobs.hpp).
// Errors: Error(unsupported) for a codec or pair of dtypes that does not exist; Error(internal) with CUDA's text where
// a launch fails. Damaged frames are reported through DeviceStatus only.
#ifndef GRADWIRE_KERNELS_DEVICE_OPERATIONS_HPP
#define GRADWIRE_KERNELS_DEVICE_OPERATIONS_HPP

#include <cstdint>
#include <span>

#include "kernels/device/jobs.hpp"

namespace gradwire::kernels {

/// Where kernels are enqueued, and how many blocks of 256 threads each of them has at most. A kernel of few blocks
/// leaves processors to other work, and takes longer.
struct KernelQueue {
  // NOLINTNEXTLINE(google-explicit-constructor): a stream alone is a queue without a bound
  KernelQueue(void* of_stream, std::uint32_t most = 0) : stream(of_stream), most_blocks(most) {}

  void* stream;               // a cudaStream_t
  std::uint32_t most_blocks;  // 0: no bound
};

/// Loads the code of all kernels below onto the current device. Otherwise CUDA loads each kernel at its first launch,
/// and that may wait for all work on the device: for ever, if that work waits for this process. Call it before such
/// work begins.
void load_kernels();
/// Limits the blocks of each kernel from here on, in this process; 0: no limit. For tests of blocks that take several
/// tiles.
void cap_blocks(std::uint32_t most);

/// Writes the headers of up to two jobs in one launch. A job that fills the frames comes behind it and says `opened`;
/// otherwise it writes them itself, in a launch of its own.
void open_headers(std::span<const HeaderJob> jobs, const KernelQueue& queue);
void encode(const EncodeJob& job, const KernelQueue& queue);
void decode(const DecodeJob& job, const KernelQueue& queue);
void reduce(const ReduceJob& job, const KernelQueue& queue);

// The same for several jobs in one launch, behind launches that write the jobs to `memory`: list_bytes() of device
// memory, aligned to 16 bytes. The jobs of one call have the same codec in all frames: a lossy one without topk. None
// is without elements, and those that fill frames say `opened`.
void open_all(std::span<const HeaderJob> jobs, std::uint64_t* memory, const KernelQueue& queue);
void encode_all(std::span<const EncodeJob> jobs, std::uint64_t* memory, const KernelQueue& queue);
void decode_all(std::span<const DecodeJob> jobs, std::uint64_t* memory, const KernelQueue& queue);
void reduce_all(std::span<const ReduceJob> jobs, std::uint64_t* memory, const KernelQueue& queue);

/// values += factor x residual, which is zero afterwards; where it is zero, values stay as they are (so does -0).
/// `device_factor`, unless null, replaces `factor`; the same holds below.
void fold(float* residual, double factor, const double* device_factor, void* values, DType dtype, std::uint64_t count,
          const KernelQueue& queue);
/// to <- from x factor / divisor (or *device_divisor), converted; each operation rounds once in the working type: f64
/// where both dtypes are f64, else f32. `to` may be `from` where both dtypes have the same size.
void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
             const double* device_factor, double divisor, const double* device_divisor, const KernelQueue& queue);
/// Computes powers[i] so that element i of a scale is 2^-powers[i] of the largest of its tile, as in kernels/scale.hpp.
/// `scale` has `count` elements from the bucket's first tile on; `powers` is aligned to 4 bytes.
void measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers, const KernelQueue& queue);
void rescale(const RescaleJob& job, const KernelQueue& queue);
/// sums[0] and sums[1] += the words of kernels/array_hash.hpp of `count` elements of 32 bits.
void hash(const void* elements, std::uint64_t count, std::uint32_t* sums, const KernelQueue& queue);
/// run <- the tensors' elements, and back. `pieces` is host memory, copied before the call returns.
void gather(std::span<const CopyPiece> pieces, DType tensors, void* run, DType run_dtype, const KernelQueue& queue);
void scatter(std::span<const CopyPiece> pieces, DType tensors, const void* run, DType run_dtype,
             const KernelQueue& queue);

/// Writes words to device memory, 480 a launch. `words` is host memory, copied before the call returns, so a graph that
/// was captured writes the same ones again.
void write(std::span<const std::uint64_t> words, std::uint64_t* to, const KernelQueue& queue);

/// totals[0] <- sum of the doubles behind `weights` (host array of device pointers, copied), in order; totals[1] <- 1 /
/// sum; totals[2] <- own / sum. All NaN where a weight is below 0 or not finite, or the sum is not above 0.
void sum_weights(std::span<const double* const> weights, double own, double* totals, const KernelQueue& queue);
void store_weight(double weight, double* to, const KernelQueue& queue);
/// *step += 1
void advance_step(std::uint32_t* step, const KernelQueue& queue);

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_OPERATIONS_HPP
