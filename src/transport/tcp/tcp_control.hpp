// Notes between ranks beside the messages: a rank gives up, a rank leaves, which ranks are there. Any thread may send.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

struct Note {
  enum class Kind : std::uint32_t { abort = 1, leave, ask, answer };
  Kind kind = Kind::leave;
  std::uint32_t number = 0;  // abort: its ErrorCode; ask, answer: the question's number
  std::string text = {};     // abort: the reason; answer: the ranks that it waits for, 4 bytes each
};

class ControlConnection {
 public:
  explicit ControlConnection(Socket socket) : socket_(std::move(socket)) {}
  ControlConnection(const ControlConnection&) = delete;
  ControlConnection& operator=(const ControlConnection&) = delete;

  /// Longer texts are cut.
  static constexpr std::size_t kLongestText = 4096;

  /// Sends a note and waits no longer than `limit`; a note that cannot be sent is lost. Never throws.
  void send(const Note& note, std::chrono::milliseconds limit) noexcept;
  /// The notes that have arrived.
  [[nodiscard]] std::vector<Note> take();
  /// Whether nothing more comes, because the peer has closed the connection or ended.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// The reason why the peer's host cannot be reached; empty while it can.
  [[nodiscard]] const std::string& unreachable() const noexcept { return unreachable_; }
  [[nodiscard]] const Socket& socket() const noexcept { return socket_; }

 private:
  Socket socket_;
  Mutex mutex_;  // held while a note is sent
  bool broken_ GUARDED_BY(mutex_) = false;
  std::vector<std::byte> unread_;
  bool ended_ = false;
  std::string unreachable_;
};

}  // namespace gradwire::transport::tcp
