// Numbers as bytes: little-endian, and varints (seven bits a byte, the lowest first, as in LEB128). The reader trusts
// no input.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gradwire/error.hpp"
#include "memory/pool_allocator.hpp"

namespace gradwire::wire {

static_assert(std::endian::native == std::endian::little, "numbers are written as memory is");

/// From a page on, its memory is the page pool's.
using Bytes = memory::PooledVector<std::byte, memory::MemoryUse::frames>;

inline void put(Bytes& out, const void* data, std::size_t count) {
  const std::size_t before = out.size();
  out.resize(before + count);
  if (count > 0) {
    std::memcpy(out.data() + before, data, count);
  }
}

template <class T>
void put_number(Bytes& out, T value) {
  put(out, &value, sizeof value);
}

/// Appends the length of the text in four bytes, then the text.
inline void put_text(Bytes& out, std::string_view text) {
  put_number(out, static_cast<std::uint32_t>(text.size()));
  put(out, text.data(), text.size());
}

inline void put_varint(Bytes& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<std::byte>(value | 0x80U));
    value >>= 7U;
  }
  out.push_back(static_cast<std::byte>(value));
}

[[nodiscard]] inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Takes bytes from the front. Error(corrupt) where there are too few; its text is `source`, what is wrong, `advice`.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string source, std::string advice = "")
      : bytes_(bytes), source_(std::move(source)), advice_(std::move(advice)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::corrupt, source_ + ": " + what + advice_);
  }
  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size(); }

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > bytes_.size()) {
      fail("it ends too early");
    }
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  /// Fills `to`.
  template <class T>
  void numbers(std::span<T> to) {
    const auto bytes = take(to.size_bytes());
    if (!bytes.empty()) {
      std::memcpy(to.data(), bytes.data(), bytes.size());
    }
  }
  std::string text() { return std::string(as_text(take(number<std::uint32_t>()))); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = number<std::uint8_t>();
      const std::uint64_t bits = byte & 0x7FU;
      if (shift == 63 && bits > 1) {
        break;
      }
      value |= bits << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    fail("a number is longer than 64 bits");
  }
  void expect_end() const {
    if (!bytes_.empty()) {
      fail(std::to_string(bytes_.size()) + " bytes too many");
    }
  }

 private:
  std::span<const std::byte> bytes_;
  std::string source_;
  std::string advice_;
};

}  // namespace gradwire::wire
