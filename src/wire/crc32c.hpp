// CRC-32C (Castagnoli), as in iSCSI and RFC 3720: reflected polynomial 0x82F63B78, initial value and final xor all
// ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace gradwire::wire {

/// The CRC of `bytes`, or of bytes whose CRC is `crc` followed by `bytes`. Uses the fastest method of this CPU.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

/// One method of computing it. Tests compare all of crc32c_methods().
struct Crc32cMethod {
  std::string_view name;
  std::uint32_t (*update)(std::uint32_t state, const std::byte* data, std::size_t bytes);  // without the two inversions
};

/// The methods that this CPU runs, the fastest last; the first is portable.
[[nodiscard]] std::span<const Crc32cMethod> crc32c_methods() noexcept;

}  // namespace gradwire::wire
