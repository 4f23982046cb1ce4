#include "transport/witness/witnesses.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/closed_in_children.hpp"
#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::transport::witness {
namespace {

constexpr std::uint64_t kMagic = 0x3173656e74697767;  // "gwtines1"
constexpr std::chrono::seconds kToSayWho{5};
constexpr std::size_t kMostVisitors = 64;

// The message of a process to its witness, with its page.
struct Announcement {
  std::uint64_t magic = kMagic;
  std::uint64_t nonce = 0;  // the witness's secret
  std::uint64_t who = 0;
};

std::string random_name() {
  std::string name = "gradwire-witness-";
  for (int i = 0; i < 2; ++i) {
    name += std::to_string(tcp::random_number());
  }
  return name;
}

}  // namespace

Witnesses::Witnesses(std::uint64_t nonce, System system)
    : nonce_(nonce), system_(std::move(system)), page_(WitnessPage::make()) {
  std::string why;
  const std::string name = random_name();
  if (page_) {
    listener_ = tcp::listen_locally(name, why);
  }
  if (listener_.valid()) {
    name_ = name;
  }
}

Witnesses::~Witnesses() { close(); }

void Witnesses::close() noexcept {
  const MutexLock lock(mutex_);
  for (const tcp::Socket& socket : own_) {
    forget_in_children(socket.fd());
  }
  own_.clear();
}

bool Witnesses::is_other_user(const System::Peer& peer) const { return peer.user != ::geteuid(); }

bool Witnesses::announce(const std::string& name, std::uint64_t nonce) {
  if (!page_ || name.empty()) {
    return false;
  }
  int code = 0;
  tcp::Socket socket = tcp::begin_connecting_locally(name, code);
  const auto peer = socket.valid() ? system_.peer(socket) : std::nullopt;
  if (!peer || is_other_user(*peer)) {
    return false;
  }
  const Announcement said{.nonce = nonce, .who = self_};
  if (!close_in_children(socket.fd())) {
    return false;
  }
  if (!send_with(socket, std::as_bytes(std::span(&said, 1)), page_->memory())) {
    forget_in_children(socket.fd());
    return false;
  }
  const MutexLock lock(mutex_);
  own_.push_back(std::move(socket));
  return true;
}

void Witnesses::forget(Id who) { watches_.erase(who); }

std::optional<tcp::EndOfProcess> Witnesses::own_word_of(Id who) const {
  const auto found = watches_.find(who);
  if (found == watches_.end() || !found->second.page.has_ended()) {
    return std::nullopt;
  }
  const LastWord word = found->second.page.read();
  return tcp::EndOfProcess{.who = who, .epoch = word.epoch, .step = word.step};
}

void Witnesses::list(std::vector<pollfd>& polled) {
  polled.push_back({listener_.fd(), POLLIN, 0});
  for (const Visitor& visitor : visitors_) {
    polled.push_back({visitor.socket.fd(), POLLIN, 0});
  }
  for (const auto& [who, watch] : watches_) {
    polled.push_back({watch.process.valid() ? watch.process.fd() : watch.socket.fd(), POLLIN, 0});
  }
  const MutexLock lock(mutex_);
  for (const tcp::Socket& socket : own_) {
    polled.push_back({socket.fd(), POLLIN, 0});
  }
}

void Witnesses::look(std::span<const pollfd> polled) {
  if (std::ranges::all_of(polled, [](const pollfd& one) { return one.revents == 0; })) {
    return;
  }
  const auto has_something = [&](int fd) {
    return std::ranges::any_of(polled, [fd](const pollfd& one) { return one.fd == fd && one.revents != 0; });
  };
  // Processes that are watched already are handled before new visitors.
  std::erase_if(watches_, [&](const auto& one) {
    const Watch& watch = one.second;
    const bool ended = watch.process.valid() ? has_something(watch.process.fd())
                                             : has_something(watch.socket.fd()) && is_at_end(watch.socket);
    if (ended) {
      const LastWord word = watch.page.read();
      ends_.push_back({.who = one.first, .epoch = word.epoch, .step = word.step});
    }
    return ended;
  });
  look_at_own();
  let_in();
  const auto now = tcp::Clock::now();
  std::erase_if(visitors_, [&](Visitor& visitor) { return now >= visitor.until || hear(visitor); });
}

// A witness that no longer needs its connection has closed it.
void Witnesses::look_at_own() {
  const MutexLock lock(mutex_);
  std::erase_if(own_, [](const tcp::Socket& socket) {
    const bool closed = is_at_end(socket);
    if (closed) {
      forget_in_children(socket.fd());
    }
    return closed;
  });
}

void Witnesses::let_in() {
  for (;;) {
    tcp::Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      return;
    }
    const auto peer = system_.peer(socket);
    if (!peer || is_other_user(*peer)) {
      continue;
    }
    Visitor visitor{.socket = std::move(socket), .until = tcp::Clock::now() + kToSayWho};
    if (hear(visitor)) {
      continue;
    }
    if (visitors_.size() >= kMostVisitors) {
      visitors_.pop_front();
    }
    visitors_.push_back(std::move(visitor));
  }
}

bool Witnesses::hear(Visitor& visitor) {
  tcp::Socket& socket = visitor.socket;
  Announcement said;
  tcp::Socket memory;
  const Received received = receive_with(socket, std::as_writable_bytes(std::span(&said, 1)), memory);
  if (received != Received::all) {
    return received == Received::ended;
  }
  auto page = WitnessPage::of(std::move(memory));
  const auto who = static_cast<Id>(said.who);
  if (said.magic != kMagic || said.nonce != nonce_ || !page || watches_.contains(who)) {
    return true;
  }
  const auto peer = system_.peer(socket);
  tcp::Socket process = peer ? system_.watch(peer->process) : tcp::Socket();
  // The pid may have been reused, but not while the other end of the connection is open. If that is closed before this
  // side closes its own, the process has ended.
  if (is_at_end(socket)) {
    const LastWord word = page->read();
    ends_.push_back({.who = who, .epoch = word.epoch, .step = word.step});
    return true;
  }
  const bool seen = process.valid();
  watches_.emplace(who, Watch{.process = std::move(process),
                              .socket = seen ? tcp::Socket() : std::move(socket),
                              .page = std::move(*page)});
  return true;
}

}  // namespace gradwire::transport::witness
