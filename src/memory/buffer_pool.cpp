#include "memory/buffer_pool.hpp"

namespace gradwire::memory {

BufferPool::Buffer& BufferPool::Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = other.pool_;
    block_ = std::move(other.block_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void BufferPool::Buffer::release() noexcept {
  if (!block_.empty()) {
    pool_->in_use_ -= block_.bytes();
    block_.release();
    bytes_ = 0;
  }
}

BufferPool::Buffer BufferPool::acquire(std::size_t bytes) {
  Buffer buffer;
  // The shortest frames take a page, too: the heap is slower than the pool.
  buffer.block_ = Block(std::max(bytes, kPageBytes), MemoryUse::frames);
  buffer.pool_ = this;
  buffer.bytes_ = bytes;
  in_use_ += buffer.block_.bytes();
  peak_ = std::max(peak_, in_use_);
  return buffer;
}

}  // namespace gradwire::memory
