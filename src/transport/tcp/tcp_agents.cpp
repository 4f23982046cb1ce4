#include "transport/tcp/tcp_agents.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace gradwire::transport::tcp {
namespace {

constexpr std::ptrdiff_t kMostOfOne = 2;  // one that has ended unnoticed, and its successor

}  // namespace

void Agents::add(Id who, Socket socket, std::uint64_t secret) {
  const MutexLock lock(mutex_);
  const auto same = [who](const Connection& one) { return one.who == who; };
  if (std::ranges::count_if(connections_, same) >= kMostOfOne) {
    const auto unproven = std::ranges::find_if(connections_, [&](const auto& one) { return same(one) && !one.proven; });
    connections_.erase(unproven == connections_.end() ? std::ranges::find_if(connections_, same) : unproven);
  }
  connections_.push_back({.who = who, .socket = std::move(socket), .secret = secret, .reader = {}, .proven = false});
}

void Agents::forget(Id who) {
  const MutexLock lock(mutex_);
  std::erase_if(connections_, [who](const Connection& one) { return one.who == who; });
}

void Agents::list(std::vector<pollfd>& polled) {
  const MutexLock lock(mutex_);
  for (const Connection& one : connections_) {
    polled.push_back({one.socket.fd(), POLLIN, 0});
  }
}

void Agents::look(std::span<const pollfd> polled) {
  if (std::ranges::all_of(polled, [](const pollfd& one) { return one.revents == 0; })) {
    return;
  }
  const MutexLock lock(mutex_);
  std::erase_if(connections_, [this](Connection& one) { return !hear(one); });
}

bool Agents::hear(Connection& connection) {
  bool there = true;
  std::array<std::byte, 256> bytes{};
  const ssize_t count = receive_some(connection.socket, bytes);
  if (count > 0) {
    connection.reader.add(std::span(bytes).first(static_cast<std::size_t>(count)));
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    there = false;
  }
  PacketHead head;
  std::span<const std::byte> body;
  for (auto next = PacketReader::Next::packet;
       (next = connection.reader.next(head, body)) != PacketReader::Next::more;) {
    AgentGreeting greeting;
    EndOfProcess end;
    if (next == PacketReader::Next::damaged) {
      return false;
    }
    if (!connection.proven) {
      if (head.kind != PacketKind::agent || !read_body(body, greeting) || greeting.secret != connection.secret) {
        return false;
      }
      connection.proven = true;
    } else if (head.kind == PacketKind::word && read_body(body, end) && end.who == connection.who) {
      ends_.push_back(end);
      return false;
    } else {
      return false;
    }
  }
  return there;
}

}  // namespace gradwire::transport::tcp
