#include "watch/live/terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <system_error>

#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire::watch::live {
namespace {

constexpr std::array<int, 6> kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP};

// The data that a signal handler may use. The pipe wakes the waiting thread, also if the signal comes just before it
// waits.
std::atomic<int> ending_signal{0};
std::atomic<bool> stop_asked{false};
std::atomic<bool> size_changed{false};
std::array<int, 2> wake_pipe{-1, -1};
std::array<struct sigaction, kSignals.size()> actions_before;

void note_signal(int number) {
  const int kept = errno;
  if (number == SIGWINCH) {
    size_changed = true;
  } else if (number == SIGTSTP) {
    stop_asked = true;
  } else {
    ending_signal = number;
  }
  const char byte = 0;
  static_cast<void>(!::write(wake_pipe[1], &byte, 1));  // a full pipe wakes the thread anyway
  errno = kept;
}

// Returns false where the terminal is gone. A signal that ends the program interrupts the write, since the terminal may
// take nothing any more (Ctrl-S).
bool write_to_terminal(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR && errno != EAGAIN) {
      return false;
    }
    if (written < 0 && ending_signal != 0) {
      return true;
    }
    text.remove_prefix(written > 0 ? static_cast<std::size_t>(written) : 0);
  }
  return true;
}

std::string_view emphasis_code(Emphasis emphasis) {
  static constexpr std::array<std::string_view, 4> kCodes{"", "\x1b[7m", "\x1b[1m", "\x1b[2m"};
  return kCodes[static_cast<std::size_t>(emphasis)];
}

}  // namespace

Size terminal_size() noexcept {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

bool can_draw() noexcept {
  const char* const name = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && name != nullptr && *name != '\0' && std::string_view(name) != "dumb";
}

Terminal::Terminal() {
  if (::pipe2(wake_pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(ErrorCode::invalid_argument, "top: no pipe can be made: " + text::reason_of(errno));
  }
  termios mode{};
  if (::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &mode) == 0) {
    before_ = mode;
  }
  ending_signal = 0;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = note_signal;  // without SA_RESTART, so that a hanging write ends
    ::sigemptyset(&action.sa_mask);
    ::sigaction(kSignals[i], &action, &actions_before[i]);
  }
  enter();
}

Terminal::~Terminal() {
  leave();
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &actions_before[i], nullptr);
  }
  for (int& end : wake_pipe) {
    ::close(end);
    end = -1;
  }
}

void Terminal::enter() noexcept {
  if (before_) {
    termios mode = *before_;
    mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z stay signals
    mode.c_cc[VMIN] = 1;
    mode.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &mode);
  }
  write_to_terminal("\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J");  // switches to the alternate screen, without a cursor
}

void Terminal::leave() noexcept {
  write_to_terminal("\x1b[0m\x1b[?25h\x1b[?1049l");
  if (before_) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
  }
}

void Terminal::show(std::span<const StyledLine> lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // Each line is cleared before it is written: a newline or a clearing behind a full line would scroll or cut it.
    text += "\x1b[" + std::to_string(i + 1) + ";1H\x1b[0m\x1b[2K";
    text += std::string(emphasis_code(lines[i].emphasis)) + lines[i].text + "\x1b[0m";
  }
  const std::size_t below = lines.size() + 1;
  if (below <= terminal_size().height) {
    text += "\x1b[" + std::to_string(below) + ";1H\x1b[0J";
  }
  if (!write_to_terminal(text)) {
    throw Error(ErrorCode::invalid_argument, "top: the terminal cannot be written: " + text::reason_of(errno));
  }
}

Terminal::Event Terminal::wait(std::chrono::nanoseconds time) {
  fd_set ready;
  FD_ZERO(&ready);
  FD_SET(wake_pipe[0], &ready);
  if (before_) {
    FD_SET(STDIN_FILENO, &ready);
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()};
  const int found = ::pselect(std::max(wake_pipe[0], STDIN_FILENO) + 1, &ready, nullptr, nullptr, &limit, nullptr);
  std::array<char, 64> bytes{};
  while (::read(wake_pipe[0], bytes.data(), bytes.size()) > 0) {
  }
  if (ending_signal != 0) {
    return Event::ended;
  }
  if (stop_asked.exchange(false)) {
    leave();
    ::raise(SIGSTOP);  // continues here once the shell says so
    enter();
    return Event::resized;
  }
  if (size_changed.exchange(false)) {
    return Event::resized;
  }
  if (found > 0 && before_ && FD_ISSET(STDIN_FILENO, &ready)) {
    const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
      return Event::quit;  // the user has closed the terminal
    }
    const std::string_view keys(bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    return keys.find_first_of("qQ") != std::string_view::npos   ? Event::quit
           : keys.find_first_of("jJ") != std::string_view::npos ? Event::next_job
                                                                : Event::none;
  }
  return Event::none;
}

int Terminal::signal() const noexcept { return ending_signal; }

}  // namespace gradwire::watch::live
