#include "tests/support/host_kernels.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "gradwire/error.hpp"
#include "tests/support/simulated_codecs.hpp"

namespace gradwire::test {

void HostKernels::open_headers(std::span<const kernels::HeaderJob> jobs) {
  std::vector<Access> accesses;
  for (const kernels::HeaderJob& job : jobs) {
    const std::vector<Access> more = accesses_of(job);
    accesses.insert(accesses.end(), more.begin(), more.end());
  }
  compute("open_headers", accesses,
          [all = std::vector<kernels::HeaderJob>(jobs.begin(), jobs.end())] { run_open_headers(all); });
}

void HostKernels::encode(const kernels::EncodeJob& job) {
  compute("encode", accesses_of(job), [job] { run_encode(job); });
}

void HostKernels::decode(const kernels::DecodeJob& job) {
  compute("decode", accesses_of(job), [job] { run_decode(job); });
}

void HostKernels::all_reduce_windows(const kernels::WindowJob& /*job*/) {
  throw Error(ErrorCode::internal, "a simulated device has no windows");
}

void HostKernels::reduce(const kernels::ReduceJob& job) {
  compute("reduce", accesses_of(job), [job] { run_reduce(job); });
}

void HostKernels::fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
                       std::uint64_t count) {
  compute("fold",
          {{residual, count * sizeof(float), true},
           {device_factor, sizeof(double), false},
           {values, count * element_bytes(dtype), true}},
          [=] { run_fold(residual, device_factor == nullptr ? factor : *device_factor, values, dtype, count); });
}

void HostKernels::convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count,
                          double factor, const double* device_factor, double divisor, const double* device_divisor) {
  compute("convert",
          {{from, count * element_bytes(from_dtype), false},
           {device_factor, sizeof(double), false},
           {device_divisor, sizeof(double), false},
           {to, count * element_bytes(to_dtype), true}},
          [=] {
            run_convert(from, from_dtype, to, to_dtype, count, device_factor == nullptr ? factor : *device_factor,
                        device_divisor == nullptr ? divisor : *device_divisor);
          });
}

void HostKernels::measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers) {
  compute("measure_scale", {{scale, count * sizeof(float), false}, {powers, count, true}},
          [=] { run_measure_scale(scale, count, powers); });
}

void HostKernels::rescale(const kernels::RescaleJob& job) {
  compute("rescale", accesses_of(job), [job] { run_rescale(job); });
}

void HostKernels::hash(const void* elements, std::uint64_t count, std::uint32_t* sums) {
  compute("hash", {{elements, count * sizeof(std::uint32_t), false}, {sums, 2 * sizeof(std::uint32_t), true}},
          [=] { run_hash(elements, count, sums); });
}

void HostKernels::gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) {
  compute("gather", accesses_of(pieces, tensors, run, run_dtype, true),
          [=, copies = std::vector<kernels::CopyPiece>(pieces.begin(), pieces.end())] {
            for (const kernels::CopyPiece& piece : copies) {
              std::byte* to = static_cast<std::byte*>(run) + piece.offset * element_bytes(run_dtype);
              if (piece.tensor == nullptr) {
                std::memset(to, 0, piece.count * element_bytes(run_dtype));
              } else {
                run_convert(piece.tensor, tensors, to, run_dtype, piece.count, 1, 1);
              }
            }
          });
}

void HostKernels::scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run, DType run_dtype) {
  compute("scatter", accesses_of(pieces, tensors, run, run_dtype, false),
          [=, copies = std::vector<kernels::CopyPiece>(pieces.begin(), pieces.end())] {
            for (const kernels::CopyPiece& piece : copies) {
              if (piece.tensor != nullptr) {
                run_convert(static_cast<const std::byte*>(run) + piece.offset * element_bytes(run_dtype), run_dtype,
                            piece.tensor, tensors, piece.count, 1, 1);
              }
            }
          });
}

void HostKernels::copy(void* to, const void* from, std::size_t bytes) {
  compute("copy", {{from, bytes, false}, {to, bytes, true}}, [=] { std::memmove(to, from, bytes); });
}

void HostKernels::sum_weights(std::span<const double* const> weights, double own, double* totals) {
  std::vector<Access> accesses{{totals, 3 * sizeof(double), true}};
  for (const double* weight : weights) {
    accesses.push_back({weight, sizeof(double), false});
  }
  compute("sum_weights", accesses, [=, all = std::vector<const double*>(weights.begin(), weights.end())] {
    double sum = 0;
    bool valid = true;
    for (const double* weight : all) {
      valid = valid && *weight >= 0 && std::isfinite(*weight);
      sum += *weight;
    }
    valid = valid && sum > 0 && std::isfinite(sum);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    totals[0] = valid ? sum : nan;
    totals[1] = valid ? 1 / sum : nan;
    totals[2] = valid ? own / sum : nan;
  });
}

void HostKernels::store_weight(double weight, double* to) {
  compute("store_weight", {{to, sizeof(double), true}}, [=] { *to = weight; });
}

}  // namespace gradwire::test
