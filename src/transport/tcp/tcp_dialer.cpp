#include "transport/tcp/tcp_dialer.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "gradwire/error.hpp"
#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::transport::tcp {

Dialer::Dialer(std::uint32_t self) : self_(self), poll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!poll_.valid()) {
    throw Error(ErrorCode::transport, "tcp: epoll_create1: " + system_text(errno));
  }
}

void Dialer::await(const Socket& socket, std::uint32_t events, int how) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = socket.fd();
  epoll_ctl(poll_.fd(), how, socket.fd(), &event);
}

void Dialer::watch(const Socket& other) const { await(other, EPOLLIN, EPOLL_CTL_ADD); }

void Dialer::begin(Order order) {
  Dial& dial = dials_.emplace_back(Dial{.order = std::move(order), .mine = {}, .tries = {}});
  dial.mine = {
      .nonce = dial.order.card.nonce, .rank = self_, .purpose = static_cast<std::uint32_t>(dial.order.purpose)};
  for (const Card::Place& place : dial.order.card.places) {
    int code = 0;
    if (Socket socket = begin_connecting(place, code); socket.valid()) {
      await(socket, EPOLLOUT, EPOLL_CTL_ADD);
      dial.tries.push_back({.socket = std::move(socket)});
    }
  }
}

Dialer::Step Dialer::move(Dial& dial, Try& one) const {
  if (!one.connected) {
    int code = 0;
    socklen_t length = sizeof(code);
    pollfd writable{one.socket.fd(), POLLOUT, 0};
    if (poll(&writable, 1, 0) == 0) {
      return Step::more;
    }
    if (getsockopt(one.socket.fd(), SOL_SOCKET, SO_ERROR, &code, &length) != 0 || code != 0) {
      return Step::failed;
    }
    one.connected = true;
    await(one.socket, EPOLLIN, EPOLL_CTL_MOD);
    Greeting mine = dial.mine;
    // It is small and the connection new, so that there is always room.
    return write_until(one.socket, bytes_of(mine), Clock::now()) ? Step::more : Step::failed;
  }
  const auto rest = bytes_of(one.answer).subspan(one.heard);
  const ssize_t count = recv(one.socket.fd(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    return Step::more;
  }
  if (count <= 0) {
    return Step::failed;
  }
  one.heard += static_cast<std::size_t>(count);
  if (one.heard < sizeof(Greeting)) {
    return Step::more;
  }
  const Greeting& answer = one.answer;
  Greeting mine = dial.mine;
  const bool right = answer.magic == kGreetingMagic && answer.nonce == mine.nonce && answer.rank == dial.order.who &&
                     write_until(one.socket, bytes_of(mine), Clock::now());  // the answer came in time
  return right ? Step::answered : Step::failed;
}

std::vector<Dialer::Made> Dialer::move() {
  std::vector<Made> made;
  const auto now = Clock::now();
  for (auto dial = dials_.begin(); dial != dials_.end();) {
    Socket found;
    for (auto one = dial->tries.begin(); one != dial->tries.end() && !found.valid();) {
      const Step step = move(*dial, *one);
      if (step == Step::answered) {
        epoll_ctl(poll_.fd(), EPOLL_CTL_DEL, one->socket.fd(), nullptr);
        found = std::move(one->socket);
      }
      one = step == Step::more ? one + 1 : dial->tries.erase(one);
    }
    if (found.valid() || dial->tries.empty() || now >= dial->order.until) {
      made.push_back({.who = dial->order.who, .purpose = dial->order.purpose, .socket = std::move(found)});
      dial = dials_.erase(dial);
    } else {
      ++dial;
    }
  }
  return made;
}

std::optional<Clock::time_point> Dialer::deadline() const {
  std::optional<Clock::time_point> first;
  for (const Dial& dial : dials_) {
    first = std::min(first.value_or(dial.order.until), dial.tries.empty() ? Clock::time_point() : dial.order.until);
  }
  return first;
}

}  // namespace gradwire::transport::tcp
