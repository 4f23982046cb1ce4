#include "memory/buffer_pool.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::memory {
namespace {

constexpr std::size_t kGranularity = 4096;  // so that frames of nearly equal size share buffers

void free_memory(std::byte* data) noexcept { ::operator delete[](data, std::align_val_t{BufferPool::kAlignment}); }

}  // namespace

BufferPool::Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      capacity_(std::exchange(other.capacity_, 0)) {}

BufferPool::Buffer& BufferPool::Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
  }
  return *this;
}

void BufferPool::Buffer::release() noexcept {
  if (data_ != nullptr) {
    pool_->give_back(data_, capacity_);
    data_ = nullptr;
    bytes_ = 0;
  }
}

void BufferPool::Buffer::leak() noexcept {
  data_ = nullptr;  // the pool still counts it as held
  bytes_ = 0;
}

BufferPool::~BufferPool() {
  for (const Free& buffer : free_) {
    free_memory(buffer.data);
  }
}

BufferPool::Buffer BufferPool::acquire(std::size_t bytes) {
  const std::size_t capacity = std::max<std::size_t>(1, (bytes + kGranularity - 1) / kGranularity) * kGranularity;
  Buffer buffer;
  auto best = free_.end();
  for (auto candidate = free_.begin(); candidate != free_.end(); ++candidate) {
    if (candidate->capacity >= capacity && candidate->capacity <= 2 * capacity &&
        (best == free_.end() || candidate->capacity < best->capacity)) {
      best = candidate;
    }
  }
  if (best != free_.end()) {
    buffer.data_ = best->data;
    buffer.capacity_ = best->capacity;
    free_.erase(best);
  } else {
    buffer.data_ = static_cast<std::byte*>(::operator new[](capacity, std::align_val_t{kAlignment}, std::nothrow));
    if (buffer.data_ == nullptr) {
      throw Error(ErrorCode::out_of_memory, "no memory for a frame buffer of " + std::to_string(capacity) +
                                                " bytes: use smaller chunks or fewer ranks on this node");
    }
    buffer.capacity_ = capacity;
    held_ += capacity;
    peak_ = std::max(peak_, held_);
  }
  buffer.pool_ = this;
  buffer.bytes_ = bytes;
  in_use_ += buffer.capacity_;
  return buffer;
}

void BufferPool::give_back(std::byte* data, std::size_t capacity) noexcept {
  in_use_ -= capacity;
  try {
    free_.push_back({data, capacity});
  } catch (const std::bad_alloc&) {
    free_memory(data);
    held_ -= capacity;
  }
}

}  // namespace gradwire::memory
