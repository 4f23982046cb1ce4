#include "memory/block.hpp"

#include <new>
#include <utility>

namespace gradwire::memory {
namespace {

constexpr std::align_val_t kHeapAlignment{64};

}  // namespace

Block::Block(std::size_t bytes, MemoryUse use, PagePool& pool) : bytes_(bytes), use_(use) {
  if (bytes >= kPageBytes) {
    data_ = pool.allocate(bytes, use);
    pool_ = &pool;
  } else if (bytes > 0) {
    data_ = static_cast<std::byte*>(::operator new[](bytes, kHeapAlignment));
  }
}

Block::Block(Block&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      use_(other.use_) {}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    use_ = other.use_;
  }
  return *this;
}

void Block::release() noexcept {
  if (pool_ != nullptr) {
    pool_->free(data_, bytes_, use_);
  } else if (data_ != nullptr) {
    ::operator delete[](data_, kHeapAlignment);
  }
  leak();
}

void Block::leak() noexcept {
  pool_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace gradwire::memory
