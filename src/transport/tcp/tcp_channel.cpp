#include "transport/tcp/tcp_channel.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace gradwire::transport::tcp {
namespace {

constexpr std::size_t kMostTaken = 1U << 20U;         // bytes from one connection before others have their turn
constexpr std::chrono::milliseconds kToOweFor{20};    // how often hear() checks whether an acknowledgement is due
constexpr std::chrono::milliseconds kLastWords{100};  // longest wait of end()

}  // namespace

std::uint32_t Channel::add(Socket socket, TcpLane::Role role) {
  auto peer = std::make_unique<Peer>(std::move(socket), role);
  std::uint32_t number = 0;
  {
    const WriterLock lock(mutex_);
    if (ended_) {
      const MutexLock own(peer->mutex);
      peer->lane.close();
    }
    peers_.push_back(std::move(peer));
    number = static_cast<std::uint32_t>(peers_.size() - 1);
  }
  wake();  // so that hear() polls the new connection too
  return number;
}

Channel::Peer* Channel::peer_at(std::uint32_t id) const noexcept {
  const ReaderLock lock(mutex_);
  return id < peers_.size() ? peers_[id].get() : nullptr;
}

void Channel::offer(std::uint32_t lane, Socket socket) {
  if (Peer* const peer = peer_at(lane)) {
    const MutexLock lock(peer->mutex);
    peer->lane.offer(std::move(socket));
  }
  wake();
}

void Channel::break_at(std::uint32_t lane, std::uint64_t attempt) {
  Peer* const peer = peer_at(lane);
  if (peer == nullptr) {
    return;
  }
  const MutexLock lock(peer->mutex);
  if (peer->lane.socket().valid() && peer->lane.attempt() == attempt) {
    static_cast<void>(shutdown(peer->lane.socket().fd(), SHUT_RDWR));  // hear() notices it
  }
}

void Channel::close(std::uint32_t lane) noexcept {
  if (Peer* const peer = peer_at(lane)) {
    const MutexLock lock(peer->mutex);
    peer->lane.close();
  }
}

void Channel::send(std::uint32_t to, std::span<const std::byte> message, PacketKind kind) noexcept {
  Peer* const peer = peer_at(to);
  if (peer == nullptr || message.size() > kLongestPacket) {
    return;
  }
  try {
    const MutexLock lock(peer->mutex);
    if (!peer->lane.push(kind, message)) {
      peer->lane.close();
      peer->given_up = true;
    } else if (!peer->lane.has_more()) {
      return;
    }
  } catch (...) {  // without memory the message is not sent
    return;
  }
  wake();  // hear() then waits until more can be sent
}

void Channel::ask_again(std::uint32_t by, std::uint32_t broken) {
  Peer* const there = peer_at(by);
  Peer* const other = peer_at(broken);
  if (there == nullptr || other == nullptr) {
    return;
  }
  BrokenLane said;
  {
    const MutexLock lock(other->mutex);
    said.attempt = other->lane.attempt();
  }
  const MutexLock lock(there->mutex);
  there->lane.push_unnumbered(PacketKind::again, bytes_of_body(said));
}

std::uint64_t Channel::unsent(std::uint32_t to) const noexcept {
  const Peer* peer = peer_at(to);
  if (peer == nullptr) {
    return 0;
  }
  const MutexLock lock(peer->mutex);
  return peer->lane.unsent();
}

bool Channel::live(std::uint32_t lane) const noexcept {
  const Peer* peer = peer_at(lane);
  if (peer == nullptr) {
    return false;
  }
  const MutexLock lock(peer->mutex);
  return peer->lane.live();
}

bool Channel::is_at_end(std::uint32_t lane) const noexcept {
  const Peer* peer = peer_at(lane);
  if (peer == nullptr) {
    return true;
  }
  const MutexLock lock(peer->mutex);
  const Socket& socket = peer->lane.socket().valid() ? peer->lane.socket() : peer->lane.candidate();
  return !socket.valid() || tcp::is_at_end(socket);
}

std::optional<std::uint64_t> Channel::secret(std::uint32_t lane) const noexcept {
  const Peer* peer = peer_at(lane);
  if (peer == nullptr) {
    return std::nullopt;
  }
  const MutexLock lock(peer->mutex);
  return peer->lane.secret();
}

std::vector<Channel::Heard> Channel::hear(std::chrono::milliseconds wait, std::span<Watched* const> beside) {
  std::vector<pollfd> polled{{wake_.readable().fd(), POLLIN, 0}};
  std::vector<std::pair<std::uint32_t, Peer*>> peers{{0, nullptr}};
  std::vector<std::size_t> unread;  // places in `polled` of what can be read though the system does not say so
  std::vector<Heard> heard;
  const auto now = Clock::now();
  const auto add = [&](const Socket& socket, short events, std::uint32_t id, Peer& peer) {
    if (has_unread(socket)) {
      unread.push_back(polled.size());
    }
    polled.push_back({socket.fd(), events, 0});
    peers.emplace_back(id, &peer);
  };
  {
    const ReaderLock list(mutex_);
    for (std::uint32_t id = 0; id < peers_.size(); ++id) {
      Peer& peer = *peers_[id];
      const MutexLock lock(peer.mutex);
      if (peer.given_up.exchange(false)) {
        heard.push_back({.from = id, .what = Heard::What::given_up});
      }
      if (peer.lane.owes(now)) {
        peer.lane.acknowledge();
      }
      if (peer.lane.socket().valid()) {
        add(peer.lane.socket(), static_cast<short>(peer.lane.has_more() ? POLLIN | POLLOUT : POLLIN), id, peer);
      }
      if (peer.lane.candidate().valid()) {
        add(peer.lane.candidate(), POLLIN, id, peer);
      }
      if (peer.lane.will_owe()) {
        wait = std::min(wait, kToOweFor);
      }
    }
  }
  std::vector<std::size_t> begins;
  for (Watched* const one : beside) {
    begins.push_back(polled.size());
    one->list(polled);
  }
  begins.push_back(polled.size());
  const bool waits = heard.empty() && unread.empty();
  if (poll(polled.data(), polled.size(), static_cast<int>(waits ? wait.count() : 0)) <= 0 && unread.empty()) {
    return heard;
  }
  for (const std::size_t place : unread) {
    polled[place].revents |= POLLIN;
  }
  if (polled[0].revents != 0) {
    wake_.clear();
  }
  for (std::size_t i = 1; i < peers.size(); ++i) {
    if (polled[i].revents != 0) {
      const auto [id, peer] = peers[i];
      const MutexLock lock(peer->mutex);
      peer->lane.flush();
      take(id, *peer, heard, kMostTaken);
    }
  }
  for (std::size_t i = 0; i < beside.size(); ++i) {
    beside[i]->look(std::span(polled).subspan(begins[i], begins[i + 1] - begins[i]));
  }
  return heard;
}

std::vector<Channel::Heard> Channel::drain(std::uint32_t lane) {
  std::vector<Heard> heard;
  if (Peer* const peer = peer_at(lane)) {
    const MutexLock lock(peer->mutex);
    take(lane, *peer, heard, SIZE_MAX);
  }
  return heard;
}

void Channel::take(std::uint32_t from, Peer& peer, std::vector<Heard>& heard, std::size_t most_bytes) {
  std::vector<TcpLane::Taken> taken;
  const TcpLane::Change change = peer.lane.take(taken, most_bytes);
  for (TcpLane::Taken& one : taken) {
    const auto what = one.kind == PacketKind::message    ? Heard::What::message
                      : one.kind == PacketKind::farewell ? Heard::What::farewell
                      : one.kind == PacketKind::word     ? Heard::What::word
                                                         : Heard::What::again;
    heard.push_back({.from = from, .what = what, .body = std::move(one.body)});
  }
  if (change != TcpLane::Change::none) {
    heard.push_back({.from = from,
                     .what = change == TcpLane::Change::broke ? Heard::What::broke : Heard::What::mended,
                     .code = peer.lane.why_broken(),
                     .damaged = peer.lane.was_damaged()});
  }
  if (peer.lane.owes(Clock::now())) {
    peer.lane.acknowledge();
  }
}

// Whether end() need not wait for this peer any more.
bool Channel::has_all_of(Peer& peer) noexcept {
  const MutexLock lock(peer.mutex);
  try {
    std::vector<TcpLane::Taken> dropped;
    static_cast<void>(peer.lane.take(dropped, kMostTaken));  // an acknowledgement may have arrived
  } catch (...) {                                            // lack of memory
    return true;
  }
  peer.lane.flush();
  if (peer.lane.live() ? !peer.lane.arrived() : peer.lane.socket().valid() || peer.lane.candidate().valid()) {
    return false;
  }
  peer.lane.shut();
  return true;
}

// A socket that is closed with unread data resets its connection, and what the other side's kernel has not received by
// then is lost. So this function waits until the kernels of all others have everything; they keep it in spite of a
// reset.
void Channel::end(std::span<const std::byte> last) noexcept {
  std::vector<Peer*> peers;
  {
    const WriterLock list(mutex_);
    if (std::exchange(ended_, true)) {
      return;
    }
    for (const std::unique_ptr<Peer>& peer : peers_) {
      peers.push_back(peer.get());
    }
  }
  for (Peer* const peer : peers) {
    const MutexLock lock(peer->mutex);
    try {
      static_cast<void>(peer->lane.push(PacketKind::farewell, last));
    } catch (...) {  // NOLINT(bugprone-empty-catch): without memory a witness reports the end
    }
  }
  const auto until = Clock::now() + kLastWords;
  while (!peers.empty()) {
    std::erase_if(peers, [](Peer* peer) { return has_all_of(*peer); });
    if (peers.empty() || Clock::now() >= until) {
      break;
    }
    usleep(1000);
  }
  for (Peer* const peer : peers) {
    const MutexLock lock(peer->mutex);
    peer->lane.shut();
  }
}

}  // namespace gradwire::transport::tcp
