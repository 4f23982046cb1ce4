// Runs the kernels of several streams at once under the emulator: all blocks of a stream's kernel are resident, a block
// goes on where others wait, and what it stores in shared memory reaches other blocks when it releases it. Before that
// it may reach them in any order, or not at all, as on devices that write to each other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "simt_emulator.hpp"

namespace gradwire::emulator {

/// Which block goes on where one waits. In a random schedule blocks also stop at barriers, and parts of what they have
/// stored arrive early.
enum class Schedule : std::uint8_t { ascending, descending, random };

struct SharedMemory {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::vector<std::uint16_t> writer;  // of each byte: 1 + the number of the block that stored it last, 0: none did
};

/// Collects what this thread launches while it lives.
class Streams {
 public:
  Streams() { hold_launches(&launches_); }
  ~Streams() { hold_launches(nullptr); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// Memory that several streams access.
  void share(const void* memory, std::size_t bytes);
  /// Whether a kernel has stored the byte of shared memory, in a run so far, even if that did not change it.
  [[nodiscard]] bool stored(const void* address) const;
  /// How many bytes of shared memory several blocks have stored.
  [[nodiscard]] std::uint64_t stored_by_several() const { return stored_by_several_; }
  /// Called each time that a block waits, with the number of waits so far: a microsecond each on the kernels' clock.
  std::function<void(std::uint64_t)> meanwhile;
  /// Runs all kernels that were launched, those of a stream one after the other. Error(internal) where a kernel fails,
  /// or where all blocks wait for ever.
  void run(Schedule schedule, unsigned seed = 0);

 private:
  std::vector<Launch> launches_;
  std::vector<SharedMemory> shared_;
  std::uint64_t stored_by_several_ = 0;
};

}  // namespace gradwire::emulator
