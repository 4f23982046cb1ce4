// A terminal that is drawn on as a whole, and restored at the end.
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

/// The size of the terminal at standard output; the default where the terminal does not tell it.
[[nodiscard]] Size terminal_size() noexcept;
/// Whether standard output is a terminal that can place its cursor.
[[nodiscard]] bool can_draw() noexcept;

/// Uses standard output and, where it is a terminal too, standard input. One object at a time in a process: it handles
/// the signals that end, stop and resize. The destructor restores everything.
class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Error(invalid_argument) where the terminal is gone.
  void show(std::span<const StyledLine> lines);

  enum class Event : std::uint8_t { none, quit, next_job, resized, ended };
  /// Waits for a key, a signal, or until the time is over.
  [[nodiscard]] Event wait(std::chrono::nanoseconds time);
  /// The signal of Event::ended, by which the caller ends itself once this object is gone.
  [[nodiscard]] int signal() const noexcept;

 private:
  void enter() noexcept;
  void leave() noexcept;

  std::optional<termios> before_;  // none: standard input is no terminal
};

}  // namespace gradwire::watch::live
