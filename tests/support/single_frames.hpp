// Takes a job of several frames apart into jobs of one frame each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/device/frame_series.hpp"

namespace gradwire::test {

/// Calls move(single job, elements before its first one) for each frame, and returns the single jobs.
template <class Job, class Move>
std::vector<Job> split(const Job& job, const Move& move) {
  std::vector<Job> all;
  for (std::uint32_t i = 0; i < job.series.frames; ++i) {
    const kernels::SeriesFrame at = kernels::frame_of_series(job.frame, job.series, i);
    Job& one = all.emplace_back(job);
    one.frame = at.place;
    one.series = {};
    move(one, at.first);
  }
  return all;
}

inline std::vector<kernels::EncodeJob> single_frames(const kernels::EncodeJob& job) {
  return split(job, [](kernels::EncodeJob& one, std::uint64_t first) {
    if (one.values != nullptr) {
      one.values = static_cast<const std::byte*>(one.values) + first * element_bytes(one.values_dtype);
    }
    one.pieces.first += first;
    one.residual += one.residual == nullptr ? 0 : first;
  });
}

inline std::vector<kernels::DecodeJob> single_frames(const kernels::DecodeJob& job) {
  return split(job, [](kernels::DecodeJob& one, std::uint64_t first) {
    if (one.values != nullptr) {
      one.values = static_cast<std::byte*>(one.values) + first * element_bytes(one.values_dtype);
    }
    one.pieces.first += first;
  });
}

}  // namespace gradwire::test
