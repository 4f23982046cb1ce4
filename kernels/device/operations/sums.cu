// The operation of a shard's owner, for sums of one codec.
#include "kernels/device/operations/dispatch.hpp"
#include "kernels/device/reduce.hpp"

namespace gradwire::kernels {
namespace {

// The type of the tensor, which headers have, changes only the bytes of exact values.
bool same_codec(const FrameCodec& a, const FrameCodec& b) {
  return a.id == b.id && a.k == b.k && (a.id != kExactId || a.dtype == b.dtype);
}

void check_reduce(const ReduceJob& job) {
  if (job.ranks < 1 || job.ranks > kMaxReduceInputs) {
    throw Error(ErrorCode::unsupported, "a sum over " + std::to_string(job.ranks) + " ranks on a device: from 1 to " +
                                            std::to_string(kMaxReduceInputs) + " can be");
  }
  if (std::uint64_t{job.pitch} * static_cast<std::uint32_t>(job.ranks) > kMostSumBytes) {
    throw Error(ErrorCode::unsupported, "a sum over frames of " + std::to_string(job.pitch) + " bytes of " +
                                            std::to_string(job.ranks) + " ranks on a device: 4 GiB can be");
  }
  if (job.own_rank >= job.ranks) {
    throw Error(ErrorCode::internal, "a sum over " + std::to_string(job.ranks) + " ranks has the own part of rank " +
                                         std::to_string(job.own_rank));
  }
  if (job.out != nullptr && works_in_f64(job.call.codec) != works_in_f64(job.second)) {
    unknown_codec(job.second);
  }
  check_working(job.call.codec, job.own == nullptr && job.own_pieces.count == 0 ? DType::f64 : job.own_dtype);
  check_working(job.call.codec, job.out != nullptr ? DType::f64 : job.result_dtype);
}

}  // namespace

// Each block of a sum checks the headers of all frames before it begins, so their number is limited. One block does it
// where there are no tiles.
constexpr std::uint32_t kMostSumBlocks = 1U << 12;

void reduce(const ReduceJob& job, const KernelQueue& queue) {
  check_reduce(job);
  if (job.out != nullptr && !job.opened) {
    const HeaderJob header = header_of(job);
    open_headers({&header, 1}, queue);
  }
  const std::uint32_t tiles = tiles_of(job.count);
  const std::uint32_t blocks = tiles == 0 ? 1 : blocks_for(tiles < kMostSumBlocks ? tiles : kMostSumBlocks, queue);
  const bool one_codec = job.call.codec.k == 0 && (job.out == nullptr || same_codec(job.call.codec, job.second));
  if (one_codec) {
    with_any_codec(job.call.codec, [&]<class C>(Type<C>) {
      launch_over(job, has_pieces(job), [&]<class Job>(const Job& over) {
        simt::launch("reduce_frames", reduce_frames<C, Job>, blocks, queue.stream, over, input_list(job));
      });
    });
  } else {
    reduce_of_any(job, blocks, queue);
  }
}

void load_sum_kernels() {
  for_all_codecs([](const FrameCodec& codec) {
    with_any_codec(codec, []<class C>(Type<C>) {
      simt::load_kernel("reduce_frames", reduce_frames<C, ReduceJob>);
      simt::load_kernel("reduce_frames", reduce_frames<C, InPieces<ReduceJob>>);
    });
  });
}

}  // namespace gradwire::kernels
