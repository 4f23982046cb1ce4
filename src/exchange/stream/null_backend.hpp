// A backend that does no work; derived classes say which memory it hands out, and how it treats messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "exchange/stream/stream_backend.hpp"
#include "memory/arena.hpp"

namespace gradwire::exchange {

class NullBackend : public StreamBackend {
 public:
  NullBackend(memory::Arena& arena, int rank, int world_size) : arena_(arena), rank_(rank), world_size_(world_size) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return world_size_; }
  [[nodiscard]] std::byte* acquire(std::size_t bytes) override { return arena_.acquire(bytes); }
  void release(std::byte* memory) noexcept override { arena_.release(memory); }
  [[nodiscard]] Event record(Queue /*queue*/) override { return 0; }
  void wait(Queue /*queue*/, Event /*event*/) override {}
  void open_headers(std::span<const kernels::HeaderJob> /*jobs*/) override {}
  void encode(const kernels::EncodeJob& /*job*/) override {}
  void decode(const kernels::DecodeJob& /*job*/) override {}
  void reduce(const kernels::ReduceJob& /*job*/) override {}
  void all_reduce_windows(const kernels::WindowJob& /*job*/) override {}
  void fold(float* /*residual*/, double /*factor*/, const double* /*device_factor*/, void* /*values*/, DType /*dtype*/,
            std::uint64_t /*count*/) override {}
  void convert(const void* /*from*/, DType /*from_dtype*/, void* /*to*/, DType /*to_dtype*/, std::uint64_t /*count*/,
               double /*factor*/, const double* /*device_factor*/, double /*divisor*/,
               const double* /*device_divisor*/) override {}
  void measure_scale(const float* /*scale*/, std::uint64_t /*count*/, std::uint8_t* /*powers*/) override {}
  void rescale(const kernels::RescaleJob& /*job*/) override {}
  void hash(const void* /*elements*/, std::uint64_t /*count*/, std::uint32_t* /*sums*/) override {}
  void gather(std::span<const kernels::CopyPiece> /*pieces*/, DType /*tensors*/, void* /*run*/,
              DType /*run_dtype*/) override {}
  void scatter(std::span<const kernels::CopyPiece> /*pieces*/, DType /*tensors*/, const void* /*run*/,
               DType /*run_dtype*/) override {}
  void write(std::span<const std::uint64_t> /*words*/, std::uint64_t* /*to*/) override {}
  void copy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) override {}
  void sum_weights(std::span<const double* const> /*weights*/, double /*own*/, double* /*totals*/) override {}
  void store_weight(double /*weight*/, double* /*to*/) override {}
  void begin_group() override {}
  void send(std::span<const std::byte> /*bytes*/, int /*peer*/) override {}
  void receive(std::span<std::byte> /*bytes*/, int /*peer*/) override {}
  void all_reduce(void* /*values*/, DType /*dtype*/, std::uint64_t /*count*/) override {}
  void sum_in_node(const void* /*from*/, void* /*to*/, DType /*dtype*/, std::uint64_t /*each*/,
                   std::uint64_t /*rest*/) override {}
  void gather_in_node(void* /*all*/, std::uint64_t /*bytes*/) override {}
  void end_group() override {}

 private:
  memory::Arena& arena_;
  int rank_;
  int world_size_;
};

}  // namespace gradwire::exchange
