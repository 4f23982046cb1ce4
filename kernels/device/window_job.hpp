// An all-reduce by one kernel inside a node: the job, and how a window is laid out. A window is memory of a rank's
// device that the other ranks of the node write to: frames, and flags that say when they are there. Plain types, as in
// kernels/device/jobs.hpp.
#ifndef GRADWIRE_KERNELS_DEVICE_WINDOW_JOB_HPP
#define GRADWIRE_KERNELS_DEVICE_WINDOW_JOB_HPP

#include <cstdint>

#include "kernels/device/frame_series.hpp"
#include "wire/frame.hpp"

namespace gradwire::kernels {

inline constexpr std::uint32_t kMostWindowRanks = 32;
/// Blocks that a rank's kernel has at most; all blocks of all ranks of a device must be resident at once.
inline constexpr std::uint32_t kMostWindowBlocks = 64;

/// Words that a rank's host and its kernels share, in pinned host memory; they are zero at first.
struct WindowWords {
  std::uint32_t abort = 0;    // not 0, set by the host: kernels stop waiting
  std::uint32_t missing = 0;  // set by kernels: 1 + the rank for which some rank waited in vain
  std::uint32_t tested = 0;   // kernels add the words of a test that arrived as they were sent
};

/// The beginning of a window, which must be zero at first.
struct WindowControl {
  std::uint32_t told = 0;                       // set by any rank that gives up, to WindowWords::missing
  std::uint32_t spare[3] = {};                  // to 16 bytes
  std::uint32_t epoch[kMostWindowBlocks] = {};  // meetings so far of each own block
};

/// The same numbers on every rank, except for `rank`.
struct WindowShape {
  std::uint32_t ranks = 0;
  std::uint32_t rank = 0;
  std::uint32_t blocks = 0;      // of every kernel that uses the window
  std::uint32_t slot_bytes = 0;  // a multiple of 16: what a rank sends another one at a time, without headers
};

// Behind the control words: flags[block][source], headers[hop][source][block], slots[hop][source].
inline constexpr std::uint32_t kWindowHops = 2;
inline constexpr std::uint32_t kWindowHeaderBytes = static_cast<std::uint32_t>(wire::kHeaderBytes);

GRADWIRE_HOST_DEVICE constexpr std::uint32_t flag_at(const WindowShape& shape, std::uint32_t block,
                                                     std::uint32_t source) {
  return static_cast<std::uint32_t>(sizeof(WindowControl)) + 4 * (block * shape.ranks + source);
}
GRADWIRE_HOST_DEVICE constexpr std::uint32_t header_at(const WindowShape& shape, std::uint32_t hop,
                                                       std::uint32_t source, std::uint32_t block) {
  const std::uint32_t first = (flag_at(shape, shape.blocks, 0) + 255) / 256 * 256;
  return first + kWindowHeaderBytes * ((hop * shape.ranks + source) * shape.blocks + block);
}
GRADWIRE_HOST_DEVICE constexpr std::uint64_t slot_at(const WindowShape& shape, std::uint32_t hop,
                                                     std::uint32_t source) {
  const std::uint32_t first = (header_at(shape, kWindowHops, 0, 0) + 255) / 256 * 256;
  return first + std::uint64_t{shape.slot_bytes} * (hop * shape.ranks + source);
}
GRADWIRE_HOST_DEVICE constexpr std::uint64_t window_bytes(const WindowShape& shape) {
  return slot_at(shape, kWindowHops, 0);
}

inline constexpr std::uint32_t kWindowRounds = 2;

// The test of windows (kernels/device/window_check.hpp) writes so many words of each slot at most.
inline constexpr std::uint32_t kTestedWords = 1U << 14;
GRADWIRE_HOST_DEVICE constexpr std::uint32_t tested_words(const WindowShape& shape) {
  const std::uint32_t words = shape.slot_bytes / 4;
  return words < kTestedWords ? words : kTestedWords;
}
/// What a rank adds to WindowWords::tested if all is well.
GRADWIRE_HOST_DEVICE constexpr std::uint32_t all_tested_words(const WindowShape& shape) {
  return kWindowRounds * kWindowHops * (shape.ranks - 1) * tested_words(shape);
}

/// Where the windows of all ranks are, as this rank sees them.
struct WindowPlaces {
  WindowShape shape;
  std::uint8_t* window[kMostWindowRanks] = {};  // by rank
  WindowWords* words = nullptr;
  std::uint64_t timeout_ns = 0;  // how long a kernel waits for a rank; 0: for ever
};

/// An all-reduce of a lane (two_shot, the same codec for both hops, without topk), made of the jobs of separate
/// kernels. `encode` has a series with a chunk of every shard, none left out, whose tiles fit into a slot. All arrays
/// begin at the first element of the bucket. reduce.out is the own slot of the second hop in the own window. decode.add
/// is false: results are stored.
template <class Encode, class Reduce, class Decode>
struct WindowJobOf {
  WindowPlaces places;
  Encode encode;
  Reduce reduce;
  Decode decode;
};
using WindowJob = WindowJobOf<EncodeJob, ReduceJob, DecodeJob>;

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WINDOW_JOB_HPP
