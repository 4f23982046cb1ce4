#include "transport/tcp/tcp_dialer.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "gradwire/error.hpp"
#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::transport::tcp {

Dialer::Dialer(std::uint32_t self, std::shared_ptr<const ConnectionKeys> keys)
    : self_(self), keys_(std::move(keys)), poll_(epoll_create1(EPOLL_CLOEXEC)) {
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
  Dial dial{.order = std::move(order), .mine = {}, .tries = {}};
  dial.mine = {
      .nonce = dial.order.card.nonce, .rank = self_, .purpose = static_cast<std::uint32_t>(dial.order.purpose)};
  for (const Card::Place& place : dial.order.card.places) {
    int code = 0;
    if (Socket socket = begin_connecting(place, code); socket.valid()) {
      if (keys_ != nullptr) {
        keys_->encrypt(socket, dial.mine, dial.order.who);
      }
      await(socket, EPOLLOUT, EPOLL_CTL_ADD);
      dial.tries.push_back({.attempt = Attempt(std::move(socket))});
    }
  }
  dials_.push_back(std::move(dial));
}

Attempt::Step Dialer::move(Dial& dial, Try& one) const {
  const bool was_connected = one.attempt.connected();
  std::string why;
  const Attempt::Step step = one.attempt.move(bytes_of(dial.mine), bytes_of(one.answer), why);
  if (one.attempt.connected() != was_connected) {
    await(one.attempt.socket(), EPOLLIN, EPOLL_CTL_MOD);
  }
  if (step != Attempt::Step::answered) {
    return step;
  }
  const bool right = is_answer(one.answer, dial.mine, dial.order.who) &&
                     write_until(one.attempt.socket(), bytes_of(dial.mine), Clock::now());  // the answer came in time
  return right ? Attempt::Step::answered : Attempt::Step::failed;
}

std::vector<Dialer::Made> Dialer::move() {
  std::vector<Made> made;
  const auto now = Clock::now();
  for (auto dial = dials_.begin(); dial != dials_.end();) {
    Socket found;
    for (auto one = dial->tries.begin(); one != dial->tries.end() && !found.valid();) {
      const Attempt::Step step = move(*dial, *one);
      if (step == Attempt::Step::answered) {
        epoll_ctl(poll_.fd(), EPOLL_CTL_DEL, one->attempt.socket().fd(), nullptr);
        found = one->attempt.take();
      }
      one = step == Attempt::Step::more ? one + 1 : dial->tries.erase(one);
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
