// Lets each rank of a communicator tell all others a few bytes, in memory that was taken when the communicator was
// made: a rank that finds no memory later must be able to say so, or the others wait for its answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

namespace gradwire::drop_in {

/// There is one exchange at a time: put(), post(), then take(). None of them takes device memory, or needs a device to
/// be current.
class RankGather {
 public:
  /// A rank tells the others at most this in one exchange.
  static constexpr std::size_t kMostBytes = 136;

  RankGather() = default;
  RankGather(const RankGather&) = delete;
  RankGather& operator=(const RankGather&) = delete;
  virtual ~RankGather() = default;

  /// Sets what this rank says; all ranks say equally many bytes. `mine` may change once it returns.
  virtual void put(std::span<const std::byte> mine) = 0;
  /// Enqueues the exchange, in one order with the job's own calls on the communicator. May be called in a group of the
  /// library.
  virtual void post() = 0;
  /// Waits for what all ranks say and copies it to `all`, by rank. Throws Error(timeout), and the errors of the
  /// communicator.
  virtual void take(std::span<std::byte> all, std::chrono::milliseconds timeout) = 0;
};

}  // namespace gradwire::drop_in
