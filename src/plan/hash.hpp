// Hashes by which ranks compare what should be equal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::plan {

/// Of bytes in host memory (XXH3), from the hash of what came before.
[[nodiscard]] std::uint64_t hash_of(const void* data, std::size_t bytes, std::uint64_t before);

}  // namespace gradwire::plan
