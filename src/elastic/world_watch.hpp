// Calls back once when the world in which a caller works is over.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace gradwire::session {

/// Not thread-safe.
class WorldWatch {
 public:
  using Clock = std::chrono::steady_clock;

  void begin(std::uint32_t epoch, std::function<void()> interrupt) {
    epoch_ = epoch;
    interrupt_ = std::move(interrupt);
  }
  void end() noexcept { interrupt_ = nullptr; }
  /// Calls the interrupt of the watched epoch, if `is_over(epoch)`.
  template <typename IsOver>
  void look(const IsOver& is_over) {
    if (interrupt_ && is_over(epoch_)) {
      over_since_ = Clock::now();
      std::exchange(interrupt_, nullptr)();
    }
  }
  /// Seconds since a watched epoch was seen to be over.
  [[nodiscard]] double seconds_since_over() const {
    return std::chrono::duration<double>(Clock::now() - over_since_).count();
  }

 private:
  std::function<void()> interrupt_;
  std::uint32_t epoch_ = 0;
  Clock::time_point over_since_ = Clock::now();
};

}  // namespace gradwire::session
