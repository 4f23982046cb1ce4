// Values of tensors as bytes, for copies that keep every bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gradwire/dtype.hpp"

namespace gradwire::session {

[[nodiscard]] inline std::byte* bytes_at(const View& view) { return static_cast<std::byte*>(view.data); }

/// Both may be null where `bytes` is 0.
inline void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace gradwire::session
