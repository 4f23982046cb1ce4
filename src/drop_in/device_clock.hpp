// The times of a device's streams.
#pragma once

#include <cstdint>
#include <optional>

namespace gradwire::drop_in {

/// A communicator has one, and its calls come from one thread at a time, so it needs no lock.
class DeviceClock {
 public:
  /// A moment of a stream; 0: none could be taken.
  using Mark = std::uint64_t;

  DeviceClock() = default;
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  virtual ~DeviceClock() = default;

  /// Enqueues a mark on `stream`, a handle of the library that is not being captured. Never waits.
  [[nodiscard]] virtual Mark mark(void* stream) = 0;
  /// Whether the device has come to the mark, or never will. Never waits.
  [[nodiscard]] virtual bool reached(Mark mark) = 0;
  /// The time between two marks that were reached; none if it is not known.
  [[nodiscard]] virtual std::optional<double> seconds(Mark begin, Mark end) = 0;
  /// The mark is not needed any more. 0 is allowed.
  virtual void drop(Mark mark) noexcept = 0;
};

}  // namespace gradwire::drop_in
