#include "transport/tcp/tcp_acceptor.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "gradwire/error.hpp"
#include "transport/tcp/tcp_descriptors.hpp"
#include "transport/tcp/tcp_secure_link.hpp"

namespace gradwire::transport::tcp {
namespace {

// With more visitors than this, the oldest one that has not greeted is dropped, since a rank greets at once.
constexpr std::size_t kMostStrangers = 64;

// Whether the visitor has proven itself as the rank that it names, for the same purpose.
bool is_who(const Socket& socket, const Greeting& said) {
  const SecureLink* const secure = socket.secure();
  const auto proven = secure == nullptr ? std::nullopt : secure->peer();
  return secure == nullptr || (proven && proven->from == said.rank && proven->purpose == said.purpose);
}

}  // namespace

Acceptor::Acceptor(std::vector<Listener> listeners, const Greeting& own, Ranks ranks,
                   std::shared_ptr<const ConnectionKeys> keys)
    : listeners_(std::move(listeners)), own_(own), ranks_(ranks), keys_(std::move(keys)) {}

std::optional<Accepted> Acceptor::take(Clock::time_point deadline, const Socket& woken) {
  for (;;) {
    const auto now = Clock::now();
    for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
      const Heard heard = now < visitor->until ? hear(*visitor) : Heard::foreign;
      if (heard == Heard::all) {
        Accepted accepted{.socket = std::move(visitor->socket),
                          .rank = static_cast<int>(visitor->said.rank),
                          .purpose = static_cast<Purpose>(visitor->said.purpose)};
        visitors_.erase(visitor);
        return accepted;
      }
      visitor = heard == Heard::more ? visitor + 1 : visitors_.erase(visitor);
    }
    if (now >= deadline) {
      return std::nullopt;
    }
    if (wait(deadline, woken)) {
      return std::nullopt;
    }
    for (const Listener& listener : listeners_) {
      let_in(listener.socket);
    }
  }
}

// Waits for a listener or a visitor, or until the first visitor's time is over.
bool Acceptor::wait(Clock::time_point deadline, const Socket& woken) const {
  std::vector<pollfd> entries{{.fd = woken.fd(), .events = POLLIN, .revents = 0}};
  for (const Listener& listener : listeners_) {
    entries.push_back({.fd = listener.socket.fd(), .events = POLLIN, .revents = 0});
  }
  for (const Visitor& visitor : visitors_) {
    entries.push_back({.fd = visitor.refused ? -1 : visitor.socket.fd(), .events = POLLIN, .revents = 0});
    deadline = std::min(deadline, visitor.until);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  poll(entries.data(), entries.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000)));
  return entries.front().revents != 0;
}

void Acceptor::let_in(const Socket& listener) {
  for (;;) {
    Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      const bool full = errno == EMFILE || errno == ENFILE;
      if (full && visitors_.empty()) {
        check_for_one_descriptor("");
        return;  // a descriptor is free again
      }
      if (full) {
        drop_oldest();
        continue;
      }
      return;  // no visitor is left, or the one that came has gone
    }
    if (visitors_.size() >= kMostStrangers + ranks_.at_once) {
      drop_oldest();
    }
    if (keys_ != nullptr) {
      keys_->encrypt_accepted(socket, own_, {.first = ranks_.first, .end = ranks_.end, .last = ranks_.last});
    }
    visitors_.push_back({.socket = std::move(socket), .until = Clock::now() + kGreetingLimit});
  }
}

void Acceptor::drop_oldest() {
  const auto silent = std::find_if(visitors_.begin(), visitors_.end(), [](const Visitor& v) { return !v.answered; });
  visitors_.erase(silent == visitors_.end() ? visitors_.begin() : silent);
}

// The answer is small and the connection new, so there is always room for it.
bool Acceptor::answer(Visitor& visitor) const {
  Greeting mine = own_;
  mine.purpose = visitor.said.purpose;
  visitor.answered = std::exchange(visitor.said, {});
  visitor.bytes = 0;
  return write_until(visitor.socket, bytes_of(mine), Clock::now());
}

// Until the whole greeting has arrived, only its public magic number is compared: otherwise a stranger could guess the
// secret part by part.
Acceptor::Heard Acceptor::judge(Visitor& visitor) const {
  const Greeting& said = visitor.said;
  constexpr std::uint64_t kMagic = kGreetingMagic;
  if (std::memcmp(&said, &kMagic, std::min(visitor.bytes, sizeof(kMagic))) != 0) {
    return Heard::foreign;
  }
  if (visitor.bytes < sizeof(Greeting)) {
    return Heard::more;
  }
  if (visitor.answered) {
    return said == *visitor.answered ? Heard::all : Heard::foreign;
  }
  const bool expected = (said.nonce ^ own_.nonce) == 0;  // one comparison of all bits
  if (!expected || !is_who(visitor.socket, said) || said.purpose > static_cast<std::uint32_t>(ranks_.last) ||
      said.rank < ranks_.first || said.rank >= ranks_.end) {
    visitor.refused = true;
    return Heard::more;
  }
  return answer(visitor) ? Heard::more : Heard::foreign;
}

Acceptor::Heard Acceptor::hear(Visitor& visitor) const {
  while (!visitor.refused) {
    const std::span<std::byte> rest = bytes_of(visitor.said).subspan(visitor.bytes);
    const ssize_t count = receive_some(visitor.socket, rest);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return count < 0 && errno == EAGAIN ? Heard::more : Heard::foreign;
    }
    visitor.bytes += static_cast<std::size_t>(count);
    if (const Heard heard = judge(visitor); heard != Heard::more) {
      return heard;
    }
  }
  return Heard::more;
}

}  // namespace gradwire::transport::tcp
