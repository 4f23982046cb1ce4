// Lends device memory that is given back while the job runs. cudaFree would wait for all work on the device, which may
// wait for a call that another rank's host makes only after it has freed memory itself; a pool of the driver frees at
// once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <set>
#include <string>

#include "memory/arena.hpp"

namespace gradwire::nccl_preload {

/// Gives no memory to a device without pools, nor the last sixteenth of a device's memory, which the job may need.
/// allocate() needs the device to be current.
class CudaLoans final : public memory::ArenaSource {
 public:
  explicit CudaLoans(int device) : device_(device) {}
  ~CudaLoans() override;

  [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
  /// Work that uses the memory must have ended.
  void free(std::byte* memory) noexcept override;
  [[nodiscard]] std::string why() const override { return why_; }

 private:
  void open();

  int device_;
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;  // allocations and frees only, so that no wait for it is long
  std::set<std::byte*> live_;
  std::string why_;
};

}  // namespace gradwire::nccl_preload
