// Tells all-reduces of gradients from those of activations, by what one rank sees of a communicator: a gradient's
// buffer comes exactly once a step, at the same address in every step. Tensor-parallel activations come at addresses
// that repeat within a step or change from step to step. The functions are pure: they know no clock, device or threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradwire::choice {

/// Describes one all-reduce of a communicator, as one rank sees it. Addresses and `apart` may differ between ranks.
struct PlacedCall {
  std::uint64_t address = 0;  // of the buffer that is read
  bool mark = false;          // other collectives came on the communicator since the call before
  bool apart = false;         // this process made collectives on other communicators since then
  bool half = false;          // 16-bit values, which activations have, too
};

/// A place counts as a gradient's after so many steps in a row.
inline constexpr std::size_t kStepsOfAPlace = 4;
/// Without marks nothing says where a step ends. Two activations that take turns at two addresses then look like two
/// buckets. So a step of which all calls look alike, or which has 16-bit values, needs so many calls without a mark:
/// the layers of a model come between two. Buckets of DDP differ in size. Where calls on other communicators come
/// between, such as those of gradients, such a step must repeat with them.
inline constexpr std::size_t kUnmarkedCalls = 1024;

/// Returns whether each of the latest `period` calls, oldest first, is a gradient's if a step has so many calls: its
/// address came exactly once in each of the last `steps` steps, so many calls apart. All are false if there are fewer
/// calls.
[[nodiscard]] std::vector<bool> gradients_of_step(std::span<const PlacedCall> calls, std::size_t period,
                                                  std::size_t steps = kStepsOfAPlace);

/// Returns the number of calls in a step, a multiple of `shortest`, after which the kinds of calls repeat; 0 if it is
/// not known yet. It is the shortest one with which marks repeat and which has a gradient's place. Marks of the older
/// half of the calls do not count, since a job begins with broadcasts of its own.
[[nodiscard]] std::size_t find_step(std::span<const PlacedCall> calls, std::size_t shortest);

}  // namespace gradwire::choice
