// A terminal that is drawn on as a whole, and given back as it was.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "watch/live/view.hpp"

namespace gradwire::watch::live {

struct Size {
  std::size_t width = 80;
  std::size_t height = 24;
};

/// Of the terminal that standard output is; the default where it does not say.
[[nodiscard]] Size terminal_size() noexcept;
/// Standard output is a terminal that knows how to place its cursor.
[[nodiscard]] bool can_draw() noexcept;

/// Standard output and, where it is a terminal too, standard input. One at a time in a process: it takes over the
/// signals that end, stop and resize. The destructor gives everything back.
class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Error(invalid_argument) where the terminal is gone.
  void show(std::span<const Line> lines);

  enum class Event : std::uint8_t { none, quit, resized, ended };
  /// Waits for a key, a signal or the time.
  [[nodiscard]] Event wait(std::chrono::nanoseconds time);
  /// The signal of Event::ended. The caller ends by it once this object is gone.
  [[nodiscard]] int signal() const noexcept;

 private:
  void enter() noexcept;
  void leave() noexcept;

  std::optional<termios> before_;  // none: standard input is no terminal
};

}  // namespace gradwire::watch::live
