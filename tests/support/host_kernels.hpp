// The computing half of a simulated device: each operation is a function on host memory with its accesses; a subclass
// has the queues.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "exchange/stream/stream_backend.hpp"
#include "tests/support/access_log.hpp"

namespace gradwire::test {

class HostKernels : public exchange::StreamBackend {
 public:
  void open_headers(std::span<const kernels::HeaderJob> jobs) final;
  void encode(const kernels::EncodeJob& job) final;
  void decode(const kernels::DecodeJob& job) final;
  void reduce(const kernels::ReduceJob& job) final;
  /// Error(internal): operations of a simulated device do not wait for those of another one.
  void all_reduce_windows(const kernels::WindowJob& job) override;
  void fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
            std::uint64_t count) final;
  void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
               const double* device_factor, double divisor, const double* device_divisor) final;
  void measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers) final;
  void rescale(const kernels::RescaleJob& job) final;
  void hash(const void* elements, std::uint64_t count, std::uint32_t* sums) final;
  void gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) override;
  void scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run, DType run_dtype) final;
  void write(std::span<const std::uint64_t> words, std::uint64_t* to) final;
  void copy(void* to, const void* from, std::size_t bytes) final;
  void sum_weights(std::span<const double* const> weights, double own, double* totals) final;
  void store_weight(double weight, double* to) final;

 protected:
  /// Enqueues `work` on the compute queue.
  virtual void compute(const char* what, const std::vector<Access>& accesses, std::function<void()> work) = 0;

 private:
  /// Adds the accesses to elements [0, count) of a job's pieces, and to their table.
  void add_pieces(const kernels::PieceTable& table, std::uint64_t count, DType dtype, bool writes,
                  std::vector<Access>& accesses) const;

  std::map<const void*, std::vector<kernels::Piece>> tables_;  // by address, as enqueued
};

}  // namespace gradwire::test
