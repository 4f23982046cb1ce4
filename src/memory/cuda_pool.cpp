#include "memory/cuda_pool.hpp"

#include "memory/cuda_check.hpp"

namespace gradwire::memory {

std::byte* CudaPool::Source::allocate(std::size_t bytes) {
  void* data = nullptr;
  last_ = cudaSetDevice(device_);
  if (last_ == cudaSuccess) {
    last_ = cudaMalloc(&data, bytes);
  }
  if (last_ != cudaSuccess) {
    cudaGetLastError();  // otherwise the next launch would report it
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

void CudaPool::Source::free(std::byte* slab) noexcept { cudaFree(slab); }

std::string CudaPool::Source::why() const { return cuda_text(last_); }

}  // namespace gradwire::memory
