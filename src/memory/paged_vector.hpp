// A vector of plain values in a block of the page pool, which compaction may move between steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

#include "memory/block.hpp"

namespace gradwire::memory {

/// Grows only by resize(), which keeps its memory if that is large enough. It may throw Error(out_of_memory) wherever
/// it needs more.
template <typename T, MemoryUse kUse>
class PagedVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  PagedVector() = default;
  /// Holds `count` zeros at first.
  explicit PagedVector(std::size_t count) { resize(count); }
  explicit PagedVector(std::span<const T> values) { assign(values); }
  PagedVector(std::initializer_list<T> values) { assign({values.begin(), values.size()}); }
  PagedVector(const T* first, const T* last) { assign({first, last}); }
  PagedVector(const PagedVector& other) { assign(other.values()); }
  PagedVector(PagedVector&& other) noexcept : block_(std::move(other.block_)), count_(std::exchange(other.count_, 0)) {}
  PagedVector& operator=(const PagedVector& other) {
    if (this != &other) {
      assign(other.values());
    }
    return *this;
  }
  PagedVector& operator=(PagedVector&& other) noexcept {
    block_ = std::move(other.block_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  ~PagedVector() = default;

  [[nodiscard]] T* data() noexcept { return reinterpret_cast<T*>(block_.data()); }
  [[nodiscard]] const T* data() const noexcept { return reinterpret_cast<const T*>(block_.data()); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] T* begin() noexcept { return data(); }
  [[nodiscard]] T* end() noexcept { return data() + count_; }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + count_; }
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return data()[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data()[index]; }
  [[nodiscard]] std::span<const T> values() const noexcept { return {data(), count_}; }

  /// New elements are zero.
  void resize(std::size_t count) {
    const std::size_t kept = std::min(count_, count);
    make_room(count, kept);
    if (count > kept) {
      std::memset(static_cast<void*>(data() + kept), 0, (count - kept) * sizeof(T));
    }
  }
  /// `values` may not be a part of this vector.
  void assign(std::span<const T> values) {
    make_room(values.size(), 0);
    if (!values.empty()) {
      std::memcpy(static_cast<void*>(data()), values.data(), values.size_bytes());
    }
  }

  /// Returns the handle of its memory, for PagePool::compact().
  [[nodiscard]] Block& block() noexcept { return block_; }

  [[nodiscard]] friend bool operator==(const PagedVector& a, const PagedVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  // Sets the size; only the first `kept` elements keep their values.
  void make_room(std::size_t count, std::size_t kept) {
    if (count * sizeof(T) > block_.bytes()) {
      Block larger(count * sizeof(T), kUse);
      if (kept > 0) {
        std::memcpy(larger.data(), block_.data(), kept * sizeof(T));
      }
      block_ = std::move(larger);
    }
    count_ = count;
  }

  Block block_;
  std::size_t count_ = 0;
};

/// Memory for values that a function needs while it runs.
template <typename T>
using ScratchVector = PagedVector<T, MemoryUse::copies>;

}  // namespace gradwire::memory
