#include "transport/tcp/tcp_reaching.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace gradwire::transport::tcp {
namespace {

using Said = RegistrationReply::Kind;

constexpr std::chrono::milliseconds kUntilRetry{20};  // before what may work soon is tried again
constexpr std::chrono::milliseconds kAskAgain{100};

template <typename Letter>
std::span<std::byte> letter_bytes(Letter& letter) {
  return std::as_writable_bytes(std::span(&letter, 1));
}

std::string place_name(const Card::Place& place) { return place.address + " port " + std::to_string(place.port); }

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

// One connection that is being made.
struct Try {
  Socket socket;
  std::string name;
  bool connected = false;
  RegistrationReply reply = {};
  std::size_t heard = 0;
};

/// Makes connections at once, and keeps the one on which the server answers first.
class Reaching {
 public:
  Reaching(const RegistrationAddress& server, const RegistrationLetter& letter, Clock::time_point deadline)
      : server_(server), letter_(letter), deadline_(deadline) {}

  /// Not valid: `why` says what was tried. Other hosts' addresses are used only where there is no server on this one.
  Socket run(std::string& why) {
    if (!server_.local.empty() && begin_locally()) {
      if (Socket socket = first(); socket.valid()) {
        return socket;
      }
    }
    for (const Card::Place& place : server_.places) {
      int code = 0;
      Socket socket = begin_connecting(place, code);
      if (socket.valid()) {
        tries_.push_back({.socket = std::move(socket), .name = place_name(place)});
      } else {
        note(place_name(place), system_text(code));
      }
    }
    Socket socket = first();
    why = tried_.empty() ? "it has no address for other hosts" : tried_;
    return socket;
  }
  /// Whether the server closed one that was made, as where strangers come in crowds: then another try may work.
  [[nodiscard]] bool was_closed() const noexcept { return was_closed_; }

 private:
  // Whether somebody listens under that name. Its queue may be full for a moment.
  bool begin_locally() {
    int code = EAGAIN;
    while (code == EAGAIN) {
      Socket socket = begin_connecting_locally(server_.local, code);
      if (socket.valid()) {
        tries_.push_back({.socket = std::move(socket), .name = "the socket of this host"});
        return true;
      }
      if (Clock::now() >= deadline_) {
        note("the socket of this host", "its queue stayed full");
        return false;
      }
      if (code == EAGAIN) {
        std::this_thread::sleep_for(kUntilRetry);
      }
    }
    return false;
  }

  Socket first() {
    while (!tries_.empty()) {
      std::vector<pollfd> entries;
      for (const Try& each : tries_) {
        entries.push_back(
            {.fd = each.socket.fd(), .events = static_cast<short>(each.connected ? POLLIN : POLLOUT), .revents = 0});
      }
      const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(deadline_));
      if (ready == 0 && Clock::now() >= deadline_) {
        for (const Try& each : tries_) {
          note(each.name, each.connected ? "no answer" : system_text(ETIMEDOUT));
        }
        tries_.clear();
        return {};
      }
      for (std::size_t i = entries.size(); i-- > 0;) {
        if (entries[i].revents == 0) {
          continue;
        }
        if (const std::string wrong = move(tries_[i]); !wrong.empty()) {
          note(tries_[i].name, wrong);
          tries_.erase(tries_.begin() + static_cast<std::ptrdiff_t>(i));
        } else if (tries_[i].heard == sizeof(RegistrationReply)) {
          return std::move(tries_[i].socket);
        }
      }
    }
    return {};
  }

  // What is wrong with it, or nothing.
  std::string move(Try& one) {
    if (!one.connected) {
      int code = 0;
      socklen_t length = sizeof(code);
      if (::getsockopt(one.socket.fd(), SOL_SOCKET, SO_ERROR, &code, &length) != 0 || code != 0) {
        return system_text(code != 0 ? code : errno);
      }
      one.connected = true;
      RegistrationLetter letter = letter_;
      // It is small and the connection new, so that there is always room.
      return write_until(one.socket, letter_bytes(letter), Clock::now()) ? "" : system_text(errno);
    }
    const auto rest = letter_bytes(one.reply).subspan(one.heard);
    const ssize_t count = ::recv(one.socket.fd(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      return "";
    }
    if (count <= 0) {
      was_closed_ = true;
      return "the connection was closed";
    }
    one.heard += static_cast<std::size_t>(count);
    if (one.heard < sizeof(RegistrationReply)) {
      return "";
    }
    const bool known =
        std::equal(one.reply.proof.begin(), one.reply.proof.end(), server_.proof.begin(), server_.proof.end());
    if (!known) {
      return "somebody else answers";
    }
    return one.reply.kind == Said::welcome ? "" : "another version of gradwire answers";
  }

  void note(const std::string& name, const std::string& what) {
    tried_ += (tried_.empty() ? "" : ", ") + name + ": " + what;
  }

  const RegistrationAddress& server_;
  const RegistrationLetter& letter_;
  Clock::time_point deadline_;
  std::vector<Try> tries_;
  std::string tried_;
  bool was_closed_ = false;
};

}  // namespace

Socket reach_server(const RegistrationAddress& server, const RegistrationLetter& letter, Clock::time_point deadline,
                    std::string& why) {
  for (;;) {
    Reaching reaching(server, letter, deadline);
    Socket socket = reaching.run(why);
    if (socket.valid() || !reaching.was_closed() || Clock::now() + kAskAgain >= deadline) {
      return socket;
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

}  // namespace gradwire::transport::tcp
