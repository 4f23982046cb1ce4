// Hashes by which ranks compare data that should be equal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::plan {

/// The hash of bytes in host memory (XXH3), continued from the hash `before` of the bytes before them.
[[nodiscard]] std::uint64_t hash_of(const void* data, std::size_t bytes, std::uint64_t before);

}  // namespace gradwire::plan
