// Computes for simulated devices (tests/support/simulated_codecs.hpp) with the kernels' own source under the emulator.
#include "kernels/device/operations.hpp"
#include "kernels/device/status.hpp"
#include "kernels/device/window_operations.hpp"
#include "tests/support/simulated_codecs.hpp"

namespace gradwire::test {
namespace {

[[maybe_unused]] const bool g_loaded = [] {
  kernels::load_kernels();
  kernels::load_status_kernels();
  kernels::load_window_kernels();
  return true;
}();

}  // namespace

void run_open_headers(std::span<const kernels::HeaderJob> jobs) { kernels::open_headers(jobs, nullptr); }

void run_encode(const kernels::EncodeJob& job) { kernels::encode(job, nullptr); }

void run_decode(const kernels::DecodeJob& job) { kernels::decode(job, nullptr); }

void run_reduce(const kernels::ReduceJob& job) { kernels::reduce(job, nullptr); }

void run_fold(float* residual, double factor, void* values, DType dtype, std::uint64_t count) {
  kernels::fold(residual, factor, nullptr, values, dtype, count, nullptr);
}

void run_convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
                 double divisor) {
  kernels::convert(from, from_dtype, to, to_dtype, count, factor, nullptr, divisor, nullptr, nullptr);
}

void run_measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers) {
  kernels::measure_scale(scale, count, powers, nullptr);
}

void run_rescale(const kernels::RescaleJob& job) { kernels::rescale(job, nullptr); }

void run_hash(const void* elements, std::uint64_t count, std::uint32_t* sums) {
  kernels::hash(elements, count, sums, nullptr);
}

}  // namespace gradwire::test
