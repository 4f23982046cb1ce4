// A device that only hands out memory, from a copy of an arena: to learn what a step takes before it is captured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "collective/stream_backend.hpp"
#include "memory/arena.hpp"

namespace gradwire::session {

/// Addresses that nobody may touch.
class NoMemory final : public memory::ArenaSource {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override {
    next_ += bytes;
    return reinterpret_cast<std::byte*>(next_ - bytes);  // NOLINT(performance-no-int-to-ptr)
  }
  void free(std::byte* /*slab*/) noexcept override {}
  [[nodiscard]] std::string why() const override { return {}; }

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 60;  // beyond what a device maps
};

class DryBackend final : public collective::StreamBackend {
 public:
  DryBackend(memory::Arena& arena, int rank, int world_size) : arena_(arena), rank_(rank), world_size_(world_size) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return world_size_; }
  [[nodiscard]] std::byte* acquire(std::size_t bytes) override { return arena_.acquire(bytes); }
  void release(std::byte* memory) noexcept override { arena_.release(memory); }
  [[nodiscard]] Event record(Queue /*queue*/) override { return 0; }
  void wait(Queue /*queue*/, Event /*event*/) override {}
  void encode(const kernels::EncodeJob& /*job*/) override {}
  void decode(const kernels::DecodeJob& /*job*/) override {}
  void reduce(const kernels::ReduceJob& /*job*/) override {}
  void fold(float* /*residual*/, double /*factor*/, const double* /*device_factor*/, void* /*values*/, DType /*dtype*/,
            std::uint64_t /*count*/) override {}
  void convert(const void* /*from*/, DType /*from_dtype*/, void* /*to*/, DType /*to_dtype*/, std::uint64_t /*count*/,
               double /*factor*/, const double* /*device_factor*/, double /*divisor*/,
               const double* /*device_divisor*/) override {}
  void gather(std::span<const kernels::CopyPiece> /*pieces*/, DType /*tensors*/, void* /*run*/,
              DType /*run_dtype*/) override {}
  void scatter(std::span<const kernels::CopyPiece> /*pieces*/, DType /*tensors*/, const void* /*run*/,
               DType /*run_dtype*/) override {}
  void copy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) override {}
  void sum_weights(std::span<const double* const> /*weights*/, double /*own*/, double* /*totals*/) override {}
  void store_weight(double /*weight*/, double* /*to*/) override {}
  void begin_group() override {}
  void send(std::span<const std::byte> /*bytes*/, int /*peer*/) override {}
  void receive(std::span<std::byte> /*bytes*/, int /*peer*/) override {}
  void all_reduce(void* /*values*/, DType /*dtype*/, std::uint64_t /*count*/) override {}
  void end_group() override {}

 private:
  memory::Arena& arena_;
  int rank_;
  int world_size_;
};

/// Lets `arena` take at once what `play`, given a backend over a copy of it, takes beyond what is there.
template <class Play>
void reserve_what_it_takes(memory::Arena& arena, int rank, int world_size, Play&& play) {
  NoMemory source;
  memory::Arena copy(arena, source);
  DryBackend backend(copy, rank, world_size);
  std::forward<Play>(play)(backend);
  const auto slabs = copy.slabs();
  arena.set_fixed(false);
  arena.add_slabs({slabs.begin() + static_cast<std::ptrdiff_t>(arena.slabs().size()), slabs.end()});
}

}  // namespace gradwire::session
