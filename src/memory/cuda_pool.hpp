// Device memory of one session, in the order of its compute stream: an arena (memory/arena.hpp) over cudaMalloc.
// Once it holds enough, acquire() and release() call nothing of CUDA, so they cost little and may be used during
// capture.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "memory/arena.hpp"

namespace gradwire::memory {

class CudaPool {
 public:
  explicit CudaPool(int device, std::size_t slab_bytes = Arena::kSlabBytes)
      : source_(device), arena_(source_, slab_bytes) {}

  /// Memory, 256-byte aligned, for work behind the present work of the compute stream. Error(out_of_memory) names the
  /// size, with CUDA's text; while fixed, it says that the memory was not reserved and what to call.
  [[nodiscard]] std::byte* acquire(std::size_t bytes) { return arena_.acquire(bytes); }
  /// Releases memory whose last use comes before later work of the compute stream. Null is allowed.
  void release(std::byte* memory) noexcept { arena_.release(memory); }

  /// The arena, for dry runs, reservations, and fixing it during capture.
  [[nodiscard]] Arena& arena() noexcept { return arena_; }

 private:
  class Source final : public ArenaSource {
   public:
    explicit Source(int device) : device_(device) {}
    [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
    void free(std::byte* slab) noexcept override;
    [[nodiscard]] std::string why() const override;

   private:
    int device_;
    cudaError_t last_ = cudaSuccess;
  };

  Source source_;
  Arena arena_;  // freed first: cudaFree waits for running work
};

}  // namespace gradwire::memory
