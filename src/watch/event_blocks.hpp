// The blocks of a file of events. Internal to watch.
#pragma once

#include <cstdint>

#include "watch/event_file.hpp"

namespace gradwire::watch {

enum BlockKind : std::uint32_t { kFile = 1, kSource = 2, kScale = 3, kEvents = 4, kEnd = 5 };

inline constexpr std::uint32_t kMagic = 0x31455647;  // "GVE1"
inline constexpr std::uint64_t kMostBlock = std::uint64_t{1} << 30;
inline constexpr std::int64_t kMostEventRanks = 1 << 20;

struct BlockHead {
  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t thread = 0;
  std::uint32_t zero = 0;
  std::uint64_t bytes = 0;
  std::uint64_t place = 0;  // in the file
};
static_assert(sizeof(BlockHead) == 32 && sizeof(EventFileHead) == 144 && sizeof(EventFileScale) == 48 &&
                  sizeof(EventFileSource) == 20,
              "no padding: they are written as bytes");

}  // namespace gradwire::watch
