// What device kernels do, on host memory and with the host's codecs, one tile after another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device/jobs.hpp"

namespace gradwire::test {

void run_encode(const kernels::EncodeJob& job);
void run_decode(const kernels::DecodeJob& job);
/// `inputs` in place of job.inputs, which the caller may have given up.
void run_reduce(const kernels::ReduceJob& job, std::span<const kernels::ReduceInput> inputs);
void run_fold(float* residual, double factor, void* values, DType dtype, std::uint64_t count);
void run_convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
                 double divisor);

/// Bytes of the frame of `count` elements.
[[nodiscard]] std::uint64_t frame_bytes(const kernels::FrameCodec& codec, std::uint32_t count);

}  // namespace gradwire::test
