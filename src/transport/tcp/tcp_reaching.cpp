#include "transport/tcp/tcp_reaching.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "transport/tcp/tcp_attempt.hpp"

namespace gradwire::transport::tcp {
namespace {

using Said = RegistrationReply::Kind;

constexpr std::chrono::milliseconds kUntilRetry{20};  // pause before a connection that may work soon is tried again
constexpr std::chrono::milliseconds kAskAgain{100};

std::string place_name(const Card::Place& place) { return place.address + " port " + std::to_string(place.port); }

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

// One connection that is being made.
struct Try {
  Attempt attempt;
  std::string name;
  RegistrationReply reply = {};
};

/// Makes several connections at once, and keeps the one on which the server answers first.
class Reaching {
 public:
  Reaching(const RegistrationAddress& server, const RegistrationLetter& letter, Clock::time_point deadline)
      : server_(server), letter_(letter), deadline_(deadline) {}

  /// Returns the connection; if it is not valid, `why` says what was tried. Addresses of other hosts are used only
  /// where there is no server on this one.
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
        tries_.push_back({.attempt = Attempt(std::move(socket)), .name = place_name(place)});
      } else {
        note(place_name(place), system_text(code));
      }
    }
    Socket socket = first();
    why = tried_.empty() ? "it has no address for other hosts" : tried_;
    return socket;
  }
  /// Whether the server closed a connection, as it does when too many come at once: another try may then work.
  [[nodiscard]] bool was_closed() const noexcept { return was_closed_; }

 private:
  // Whether a server listens under that name. Its queue may be full for a moment.
  bool begin_locally() {
    int code = EAGAIN;
    while (code == EAGAIN) {
      Socket socket = begin_connecting_locally(server_.local, code);
      if (socket.valid()) {
        tries_.push_back({.attempt = Attempt(std::move(socket)), .name = "the socket of this host"});
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
        entries.push_back({.fd = each.attempt.socket().fd(),
                           .events = static_cast<short>(each.attempt.connected() ? POLLIN : POLLOUT),
                           .revents = 0});
      }
      const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(deadline_));
      if (ready == 0 && Clock::now() >= deadline_) {
        for (const Try& each : tries_) {
          note(each.name, each.attempt.connected() ? "no answer" : system_text(ETIMEDOUT));
        }
        tries_.clear();
        return {};
      }
      for (std::size_t i = entries.size(); i-- > 0;) {
        if (entries[i].revents == 0) {
          continue;
        }
        std::string why;
        const Attempt::Step step = move(tries_[i], why);
        if (step == Attempt::Step::answered) {
          return tries_[i].attempt.take();
        }
        if (step == Attempt::Step::failed) {
          note(tries_[i].name, why);
          tries_.erase(tries_.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
    }
    return {};
  }

  Attempt::Step move(Try& one, std::string& why) {
    const Attempt::Step step =
        one.attempt.move(std::as_bytes(std::span(&letter_, 1)), std::as_writable_bytes(std::span(&one.reply, 1)), why);
    was_closed_ = was_closed_ || one.attempt.was_closed();
    if (step != Attempt::Step::answered) {
      return step;
    }
    const bool known =
        std::equal(one.reply.proof.begin(), one.reply.proof.end(), server_.proof.begin(), server_.proof.end());
    if (known && one.reply.kind == Said::welcome) {
      return step;
    }
    why = known ? "another version of gradwire answers" : "somebody else answers";
    return Attempt::Step::failed;
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
