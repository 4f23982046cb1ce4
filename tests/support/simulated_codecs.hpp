// Simulates device kernels on host memory with the host's codecs, one tile after another; also lists the memory they
// use. (tests/kernels/emulated_codecs.cpp has the same functions by the kernels' own source.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device/jobs.hpp"
#include "tests/support/access_log.hpp"

namespace gradwire::test {

/// Simulated encoders write headers together with their frames, and this does nothing.
void run_open_headers(std::span<const kernels::HeaderJob> jobs);
void run_encode(const kernels::EncodeJob& job);
void run_decode(const kernels::DecodeJob& job);
/// Uses `inputs` in place of job.inputs, which the caller may have freed.
void run_reduce(const kernels::ReduceJob& job);
void run_fold(float* residual, double factor, void* values, DType dtype, std::uint64_t count);
void run_convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
                 double divisor);
void run_measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers);
void run_rescale(const kernels::RescaleJob& job);
void run_hash(const void* elements, std::uint64_t count, std::uint32_t* sums);

// These functions are in job_accesses.cpp. Words that kernels only set (DeviceStatus) are left out.
[[nodiscard]] std::vector<Access> accesses_of(const kernels::HeaderJob& job);
[[nodiscard]] std::vector<Access> accesses_of(const kernels::EncodeJob& job);
[[nodiscard]] std::vector<Access> accesses_of(const kernels::DecodeJob& job);
[[nodiscard]] std::vector<Access> accesses_of(const kernels::ReduceJob& job);
[[nodiscard]] std::vector<Access> accesses_of(const kernels::RescaleJob& job);
/// Returns the accesses of copies from tensors to a run (`gathers`), or back.
[[nodiscard]] std::vector<Access> accesses_of(std::span<const kernels::CopyPiece> pieces, DType tensors,
                                              const void* run, DType run_dtype, bool gathers);

/// Returns the bytes of a frame of `count` elements.
[[nodiscard]] std::uint64_t frame_bytes(const kernels::FrameCodec& codec, std::uint32_t count);

}  // namespace gradwire::test
