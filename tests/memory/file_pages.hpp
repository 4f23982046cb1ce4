// Random pages of a scratch file, and requests that are waited for at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <span>

#include "file_backends.hpp"
#include "memory/block.hpp"
#include "memory/page_file.hpp"

namespace gradwire::memory {

class OverPageFiles : public OverFileBackends {
 protected:
  [[nodiscard]] PageFileOptions options(std::size_t page_bytes = kFileUnit, std::uint32_t in_flight = 8) const {
    return {.folder = folder(),
            .holds = "residuals",
            .page_bytes = page_bytes,
            .backend = GetParam(),
            .in_flight = in_flight};
  }
};

/// Returns pages of random bytes, the same ones for the same seed.
inline Block pages_of(const PageFile& file, std::size_t pages, std::uint32_t seed) {
  Block block(pages * file.page_bytes(), MemoryUse::staging);
  std::mt19937_64 random(seed);
  for (std::size_t at = 0; at < block.bytes(); at += sizeof(std::uint64_t)) {
    const std::uint64_t value = random();
    std::memcpy(block.data() + at, &value, sizeof value);
  }
  return block;
}

inline std::span<std::byte> span_of(Block& block) { return {block.data(), block.bytes()}; }
inline bool equal(const Block& a, const Block& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

inline void write_now(PageFile& file, PageFile::Page first, Block& block) {
  file.wait(file.write(first, span_of(block)));
}
inline Block read_now(PageFile& file, PageFile::Page first, std::size_t pages) {
  Block block(pages * file.page_bytes(), MemoryUse::staging);
  file.wait(file.read(first, span_of(block)));
  return block;
}

}  // namespace gradwire::memory
