// What the operations share, which are compiled apart, since nvcc takes long: how a codec is chosen for a kernel, and
// how many blocks a kernel gets.
#ifndef GRADWIRE_KERNELS_DEVICE_OPERATIONS_DISPATCH_HPP
#define GRADWIRE_KERNELS_DEVICE_OPERATIONS_DISPATCH_HPP

#include <cstdint>
#include <string>

#include "kernels/device/codec_table.hpp"
#include "kernels/device/operations.hpp"
#include "kernels/device/pieces.hpp"
#include "kernels/device/strip.hpp"

namespace gradwire::kernels {

[[noreturn]] inline void unknown_codec(const FrameCodec& codec) {
  throw Error(ErrorCode::unsupported, "no kernel for codec " + std::to_string(codec.id) + " with k " +
                                          std::to_string(codec.k) + " over dtype " +
                                          std::to_string(static_cast<int>(codec.dtype)));
}

/// The most blocks of a kernel in this process.
inline std::uint32_t g_most_blocks = simt::kMostBlocks;

/// The number of blocks for `parts` of work, which blocks take one after the other.
inline std::uint32_t blocks_for(std::uint64_t parts, const KernelQueue& queue) {
  const std::uint32_t most =
      queue.most_blocks == 0 || queue.most_blocks > g_most_blocks ? g_most_blocks : queue.most_blocks;
  return parts < most ? static_cast<std::uint32_t>(parts) : most;
}

/// Checks that f64 working values lie in f64 arrays.
inline void check_working(const FrameCodec& codec, DType values) {
  if (works_in_f64(codec) && values != DType::f64) {
    unknown_codec({codec.id, codec.k, values});
  }
}

/// Whether elements go into the frame, or come out of it, with their bytes untouched.
inline bool verbatim(const FrameCodec& codec, DType values) {
  return codec.id == kExactId && codec.k == 0 && codec.dtype == values && half_width(values);
}

/// Calls body(Type<codec or selected coder>) with the codec's working type.
template <class Body>
void with_any_codec(const FrameCodec& codec, const Body& body) {
  if (!(works_in_f64(codec) ? host_with_codec<double>(codec, body) : host_with_codec<float>(codec, body))) {
    unknown_codec(codec);
  }
}
template <class Body>
void with_any_selected(const FrameCodec& codec, const Body& body) {
  if (!(works_in_f64(codec) ? host_with_selected<double>(codec, body) : host_with_selected<float>(codec, body))) {
    unknown_codec(codec);
  }
}

/// Calls launch(job), with the job as one over pieces if it has any.
template <class Job, class Launch>
void launch_over(const Job& job, bool pieces, const Launch& launch) {
  pieces ? launch(InPieces<Job>{job}) : launch(job);
}

/// Whether a sum reads or writes pieces.
inline bool has_pieces(const ReduceJob& job) { return job.own_pieces.count != 0 || job.result_pieces.count != 0; }

/// Sums that reduce_frames does not serve.
void reduce_of_any(const ReduceJob& job, std::uint32_t blocks, const KernelQueue& queue);

// Parts of load_kernels().
void load_frame_kernels();
void load_sum_kernels();
void load_kernels_of_any();
void load_list_kernels();

/// Calls `load` with each codec of the table, which reads its id and dtype only.
template <class Load>
void for_all_codecs(const Load& load) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (std::uint8_t id = kExactId; id < kCodecIds; ++id) {
      load(FrameCodec{.id = id, .dtype = dtype});
    }
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_OPERATIONS_DISPATCH_HPP
