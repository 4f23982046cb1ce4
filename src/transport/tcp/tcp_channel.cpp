#include "transport/tcp/tcp_channel.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "gradwire/error.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::size_t kMostLate = 1U << 30;  // for a process that takes nothing: it is silent, and will be left out

constexpr std::size_t kMostTaken = 1U << 20;  // of one connection, before others have their turn

using Length = std::uint32_t;

// Gives the memory of long ones back: a copy was long, and the next may not come soon, or this peer has ended.
void empty(std::vector<std::byte>& bytes) {
  constexpr std::size_t kShort = 4096;
  bytes.clear();
  if (bytes.capacity() > kShort) {
    std::vector<std::byte>().swap(bytes);  // an assignment of {} keeps it
  }
}

// Whether the error says that the process at the other end is gone, rather than the way to it.
bool is_end(int code) { return code == ECONNRESET || code == EPIPE || code == ENOTCONN; }

}  // namespace

Channel::Channel(std::vector<Socket> sockets) : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wake_.valid()) {
    throw Error(ErrorCode::transport, "tcp: eventfd: " + system_text(errno));
  }
  for (Socket& socket : sockets) {
    peers_.push_back(socket.valid() ? std::make_unique<Peer>(std::move(socket)) : nullptr);
  }
}

std::uint32_t Channel::add(Socket socket) {
  auto peer = std::make_unique<Peer>(std::move(socket));
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      peer->broken = true;
      static_cast<void>(shutdown(peer->socket.fd(), SHUT_RDWR));
    }
    peers_.push_back(std::move(peer));
    number = static_cast<std::uint32_t>(peers_.size() - 1);
  }
  wake();  // hear() listens to it, too
  return number;
}

Channel::Peer* Channel::peer_at(std::uint32_t id) const noexcept {
  const std::shared_lock lock(mutex_);
  return id < peers_.size() ? peers_[id].get() : nullptr;
}

void Channel::send(std::uint32_t to, std::span<const std::byte> message) noexcept {
  Peer* const found = peer_at(to);
  if (found == nullptr || message.size() > kLongestMessage) {
    return;
  }
  Peer& peer = *found;
  try {
    const std::lock_guard lock(peer.mutex);
    if (peer.broken) {
      return;
    }
    const auto length = static_cast<Length>(message.size());
    const auto* head = reinterpret_cast<const std::byte*>(&length);
    peer.late.insert(peer.late.end(), head, head + sizeof(length));
    peer.late.insert(peer.late.end(), message.begin(), message.end());
    flush(peer);
    if (peer.late.size() - peer.sent > kMostLate) {
      peer.broken = true;
      flush(peer);
    }
    if (peer.late.empty()) {
      return;
    }
  } catch (...) {  // no memory: half of it may be on its way
    peer.broken = true;
  }
  wake();  // hear() looks when more can go out
}

std::uint64_t Channel::unsent(std::uint32_t to) const noexcept {
  const Peer* peer = peer_at(to);
  if (peer == nullptr) {
    return 0;
  }
  const std::lock_guard lock(peer->mutex);
  return peer->late.size() - peer->sent;
}

void Channel::flush(Peer& peer) noexcept {
  while (!peer.broken && peer.sent < peer.late.size()) {
    const ssize_t count = ::send(peer.socket.fd(), peer.late.data() + peer.sent, peer.late.size() - peer.sent,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      peer.sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      peer.broken = true;
    }
  }
  if (peer.broken || peer.sent == peer.late.size()) {
    empty(peer.late);
    peer.sent = 0;
  }
}

std::vector<Channel::Heard> Channel::hear(std::chrono::milliseconds wait) {
  std::vector<pollfd> polled{{wake_.fd(), POLLIN, 0}};
  std::vector<std::pair<std::uint32_t, Peer*>> peers{{0, nullptr}};
  {
    const std::shared_lock list(mutex_);
    for (std::uint32_t id = 0; id < peers_.size(); ++id) {
      if (peers_[id] == nullptr || peers_[id]->closed) {
        continue;
      }
      const std::lock_guard lock(peers_[id]->mutex);
      const bool more = !peers_[id]->late.empty() && !peers_[id]->broken;
      polled.push_back({peers_[id]->socket.fd(), static_cast<short>(more ? POLLIN | POLLOUT : POLLIN), 0});
      peers.emplace_back(id, peers_[id].get());
    }
  }
  std::vector<Heard> heard;
  if (poll(polled.data(), polled.size(), static_cast<int>(wait.count())) <= 0) {
    return heard;
  }
  if (polled[0].revents != 0) {
    std::uint64_t count = 0;
    static_cast<void>(read(wake_.fd(), &count, sizeof(count)));
  }
  for (std::size_t i = 1; i < polled.size(); ++i) {
    const auto [id, found] = peers[i];
    Peer& peer = *found;
    if ((polled[i].revents & POLLOUT) != 0) {
      const std::lock_guard lock(peer.mutex);
      flush(peer);
    }
    if ((polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      take(id, peer, heard);
    }
  }
  return heard;
}

void Channel::take(std::uint32_t from, Peer& peer, std::vector<Heard>& heard) {
  bool gone = false;
  bool ended = false;
  std::vector<std::byte> buffer(65536);  // not on the stack: a job's thread may have little of it
  for (std::size_t taken = 0; !peer.closed && taken < kMostTaken;) {
    const ssize_t count = recv(peer.socket.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count > 0) {
      peer.unread.insert(peer.unread.end(), buffer.begin(), buffer.begin() + count);
      taken += static_cast<std::size_t>(count);
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      peer.closed = true;  // unreachable: it is silent from here on
      gone = true;
      ended = count == 0 || is_end(errno);
    } else if (errno == EAGAIN) {
      break;
    }
  }
  std::size_t at = 0;
  for (Length length = 0; peer.unread.size() - at >= sizeof(length);) {
    std::memcpy(&length, peer.unread.data() + at, sizeof(length));
    if (length > kLongestMessage) {
      peer.closed = true;  // no process of ours says so much
      break;
    }
    if (peer.unread.size() - at - sizeof(length) < length) {
      break;
    }
    const auto begin = peer.unread.begin() + static_cast<std::ptrdiff_t>(at + sizeof(length));
    heard.push_back({.from = from, .message = {begin, begin + length}});
    at += sizeof(length) + length;
  }
  if (at == peer.unread.size()) {
    empty(peer.unread);
  } else {
    peer.unread.erase(peer.unread.begin(), peer.unread.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (gone) {
    heard.push_back({.from = from, .ended = ended, .lost = !ended});
    // Processes come and go: none leaves a descriptor behind.
    const std::lock_guard lock(peer.mutex);
    peer.broken = true;
    flush(peer);
    peer.socket = Socket();
    empty(peer.unread);
  }
}

void Channel::wake() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(write(wake_.fd(), &one, sizeof(one)));
}

void Channel::end() noexcept {
  const std::lock_guard list(mutex_);
  ended_ = true;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer != nullptr) {
      const std::lock_guard lock(peer->mutex);
      flush(*peer);
      peer->broken = true;
      static_cast<void>(shutdown(peer->socket.fd(), SHUT_RDWR));
    }
  }
}

}  // namespace gradwire::transport::tcp
