// Cuts elements into byte planes: plane p has byte p of every element. Exponents of gradients are alike and their last
// bytes are noise, so planes shrink where elements as they are do not. A packed payload holds each plane as it is or as
// a zstd frame, whichever is smaller; docs/reference/wire-format.md has its bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gradwire::codec {

inline constexpr std::size_t kMostPlanes = 8;

/// Counts elements, and the bytes of each.
struct Elements {
  std::uint32_t count = 0;
  std::size_t bytes_each = 0;  // 2, 4 or 8

  [[nodiscard]] std::size_t bytes() const noexcept { return count * bytes_each; }
};

/// Says where each plane begins. The planes from bytes_each on are null.
using Planes = std::array<const std::byte*, kMostPlanes>;

/// Packs elements that lie at `values` into `out`, which may overlap them, and returns the bytes of the packed payload.
/// 0: it does not fit, and `values` are as before. It needs require_zstd(), and uses memory of the calling thread, of
/// as many bytes as the values.
[[nodiscard]] std::size_t pack(std::byte* values, const Elements& elements, std::span<std::byte> out);

/// Unpacks a payload. The planes lie in the payload itself or in `room`, which has elements.bytes() bytes. It needs
/// require_zstd(). Damage throws Error(corrupt), whose text begins with `source`.
[[nodiscard]] Planes unpack(std::span<const std::byte> payload, const Elements& elements, std::span<std::byte> room,
                            const std::string& source);

/// Puts elements [first, first + elements.count) together from their planes.
void merge(const Planes& planes, std::uint32_t first, const Elements& elements, std::byte* values) noexcept;

}  // namespace gradwire::codec
