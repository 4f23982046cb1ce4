// The blocks that a training takes from the page pool and frees, in order, and players of such a recording.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::bench {

/// Block number `slot` is taken with `bytes`, or freed where `bytes` is 0. A slot is used again once it is free.
struct MemoryEvent {
  std::uint32_t slot = 0;
  std::uint32_t bytes = 0;
};
using MemoryRecording = std::vector<MemoryEvent>;

/// Records a session of two ranks in this process: 60 steps over a model of 25 MB by int4 with error feedback, from its
/// first step to its end.
[[nodiscard]] MemoryRecording record_training();
/// Return recordings of blocks of one size, each taken and freed at once, and of blocks of 56 KiB to 4 MiB with 16 in
/// use.
[[nodiscard]] MemoryRecording one_frame(std::uint32_t bytes, std::size_t pairs);
[[nodiscard]] MemoryRecording random_frames(std::size_t pairs);

void write_recording(const std::string& file, const MemoryRecording& recording);
[[nodiscard]] MemoryRecording read_recording(const std::string& file);

struct Played {
  double nanoseconds = 0;        // for a block: taking and freeing it, and with `touches` a write to each page
  std::uint64_t peak_bytes = 0;  // by which the resident memory of the process rose at most
};

/// Plays by the page pool, or by malloc() and free() of this process.
enum class Player : std::uint8_t { pool, malloc };
[[nodiscard]] Played play(const MemoryRecording& recording, Player player, bool touches, int rounds);

}  // namespace gradwire::bench
