#include "memory/cuda_pinned.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "memory/cuda_check.hpp"

namespace gradwire::memory {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

PinnedPool::~PinnedPool() {
  for (const Buffer& buffer : buffers_) {
    cudaFreeHost(buffer.data);
  }
}

std::byte* PinnedPool::acquire(std::size_t bytes) {
  const std::size_t size = std::max<std::size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
  Buffer* best = nullptr;
  for (Buffer& buffer : buffers_) {
    if (!buffer.in_use && buffer.bytes >= size && (best == nullptr || buffer.bytes < best->bytes)) {
      best = &buffer;
    }
  }
  if (best == nullptr) {
    cuda_check(cudaSetDevice(device_), "choosing device " + std::to_string(device_));
    void* data = nullptr;
    cuda_check(cudaHostAlloc(&data, size, cudaHostAllocPortable),
               "pinning " + std::to_string(size) + " bytes of host memory for staging");
    best = &buffers_.emplace_back(Buffer{static_cast<std::byte*>(data), size, false});
    bytes_ += size;
  }
  best->in_use = true;
  return best->data;
}

void PinnedPool::release(std::byte* memory) noexcept {
  for (Buffer& buffer : buffers_) {
    buffer.in_use = buffer.in_use && buffer.data != memory;
  }
}

void PinnedPool::leak(std::byte* memory) noexcept {
  std::erase_if(buffers_, [=](const Buffer& buffer) { return buffer.data == memory; });
}

}  // namespace gradwire::memory
