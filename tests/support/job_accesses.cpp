#include "codec/codec.hpp"
#include "kernels/device/frame_series.hpp"
#include "tests/support/simulated_codecs.hpp"
#include "tests/support/single_frames.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {

std::uint64_t frame_bytes(const kernels::FrameCodec& codec, std::uint32_t count) {
  return codec::Codec({codec.id, codec.k}, codec.dtype).frame_bytes(count);
}

std::vector<Access> accesses_of(const kernels::HeaderJob& job) {
  std::vector<Access> all{{job.call.step, sizeof(std::uint32_t), false}};
  for (std::uint32_t i = 0; i < job.series.frames; ++i) {
    all.push_back({kernels::frame_of_series(job.frame, job.series, i).place.bytes, wire::kHeaderBytes, true});
  }
  return all;
}

std::vector<Access> accesses_of(const kernels::EncodeJob& job) {
  std::vector<Access> all{{job.call.step, sizeof(std::uint32_t), false}};
  for (const kernels::EncodeJob& one : single_frames(job)) {
    const std::uint64_t count = one.frame.count;
    all.push_back({one.values, count * element_bytes(one.values_dtype), false});
    all.push_back({one.residual, count * sizeof(float), true});
    all.push_back({one.frame.bytes, frame_bytes(one.call.codec, one.frame.count), true});
  }
  return all;
}

std::vector<Access> accesses_of(const kernels::DecodeJob& job) {
  std::vector<Access> all{{job.call.step, sizeof(std::uint32_t), false}};
  for (const kernels::DecodeJob& one : single_frames(job)) {
    all.push_back({one.frame.bytes, frame_bytes(one.call.codec, one.frame.count), false});
    all.push_back({one.values, one.frame.count * element_bytes(one.values_dtype), true});
  }
  return all;
}

std::vector<Access> accesses_of(const kernels::ReduceJob& job) {
  const std::uint64_t count = job.count;
  std::vector<Access> all{{job.own, count * element_bytes(job.own_dtype), false},
                          {job.own_residual, count * sizeof(float), true},
                          {job.owner_residual, count * sizeof(float), true},
                          {job.device_divisor, sizeof(double), false},
                          {job.call.step, sizeof(std::uint32_t), false},
                          {job.result, count * element_bytes(job.result_dtype), true}};
  for (int frame = 0; frame < job.ranks - (job.own_rank >= 0 ? 1 : 0); ++frame) {
    all.push_back({job.frames + std::uint64_t{job.pitch} * static_cast<std::uint32_t>(frame),
                   frame_bytes(job.call.codec, job.count), false});
  }
  if (job.out != nullptr) {
    all.push_back({job.out, frame_bytes(job.second, job.count), true});
  }
  return all;
}

std::vector<Access> accesses_of(const kernels::RescaleJob& job) {
  return {{job.from, job.count * element_bytes(job.from_dtype), false},
          {job.powers, job.count, false},
          {job.to, job.count * element_bytes(job.to_dtype), true}};
}

std::vector<Access> accesses_of(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run,
                                DType run_dtype, bool gathers) {
  std::vector<Access> all;
  for (const kernels::CopyPiece& piece : pieces) {
    const std::uint64_t element = element_bytes(run_dtype);
    all.push_back({piece.tensor, piece.count * element_bytes(tensors), !gathers});
    all.push_back({static_cast<const std::byte*>(run) + piece.offset * element, piece.count * element, gathers});
  }
  return all;
}

}  // namespace gradwire::test
