#include "transport/tcp/tcp_transport.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/forked.hpp"
#include "transport/tcp/tcp_endpoint.hpp"

namespace gradwire::transport {
namespace tcp {
namespace {

constexpr std::chrono::milliseconds kNoteLimit{500};  // a stopped peer must not stop this rank
constexpr std::uint64_t kWake = ~std::uint64_t{0};

}  // namespace

TcpTransport::TcpTransport(const Rendezvous& rendezvous, const TcpOptions& options)
    : rank_(options.rank), poll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  Connections made = connect_all(rendezvous, options);
  encrypted_ = made.encrypted;
  nodes_ = std::move(made.nodes);
  peers_.resize(made.peers.size());
  answers_.resize(made.peers.size());
  if (!poll_.valid() || !wake_.valid()) {
    throw Error(ErrorCode::transport, "tcp rank " + std::to_string(rank_) + ": no epoll or eventfd: " +
                                          system_text(errno) + "; raise the limit of open files (ulimit -n)");
  }
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWake}};
  epoll_ctl(poll_.fd(), EPOLL_CTL_ADD, wake_.fd(), &event);
  for (int rank = 0; rank < world_size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (rank != rank_) {
      peers_[at] = std::make_unique<Peer>(std::move(made.peers[at]), *this);
      peers_[at]->events = EPOLLIN;
      watch(rank, false, EPOLLIN, EPOLL_CTL_ADD);
      watch(rank, true, EPOLLIN, EPOLL_CTL_ADD);
    }
  }
}

// The kernel delivers messages that are on their way.
TcpTransport::~TcpTransport() {
  for (const auto& peer : peers_) {
    if (peer) {
      peer->control.send({.kind = Note::Kind::leave}, kNoteLimit);
    }
  }
  for (Request& request : requests_) {
    request.operation->handle = nullptr;
  }
}

void TcpTransport::watch(int rank, bool control, std::uint32_t events, int how) const {
  const Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  epoll_event event{.events = events, .data = {.u64 = static_cast<std::uint64_t>(rank) * 2 + (control ? 1 : 0)}};
  epoll_ctl(poll_.fd(), how, (control ? peer.control.socket() : peer.stream.socket()).fd(), &event);
}

// Sends as much as possible, and the rest once there is room.
void TcpTransport::want(int rank) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const std::uint32_t events = peer.stream.flush() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  if (events != peer.events && peer.stream.ended().empty()) {
    peer.events = events;
    watch(rank, false, events, EPOLL_CTL_MOD);
  }
}

Request& TcpTransport::add(Operation& operation) {
  requests_.emplace_front();
  Request& request = requests_.front();
  request.operation = &operation;
  request.self = requests_.begin();
  operation.handle = &request;
  return request;
}

void TcpTransport::remove(Request& request) {
  request.operation->handle = nullptr;
  requests_.erase(request.self);
}

void TcpTransport::finished(Request& request) {
  request.status = Request::Status::finished;
  finished_.push_back(&request);
}

void TcpTransport::failed(Request& request, const std::string& why) {
  request.status = Request::Status::failed;
  if (!failure_) {
    failure_ = why;
  }
}

void TcpTransport::post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) {
  throw_if_aborted();
  begin_send(operation, *this, peer, tag, data);
  peers_[static_cast<std::size_t>(peer)]->stream.send(add(operation));
  want(peer);
}

void TcpTransport::receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most) {
  throw_if_aborted();
  begin_receive(operation, *this, peer, tag, data, at_most);
  peers_[static_cast<std::size_t>(peer)]->stream.receive(add(operation));
}

void TcpTransport::post_all_reduce(Operation& operation, View data) { begin_all_reduce(operation, *this, data); }

bool TcpTransport::progress(std::chrono::microseconds wait) {
  const auto deadline = Clock::now() + bounded(wait);
  throw_if_aborted();
  move(Clock::now());
  while (finished_.empty() && !failure_ && !abort_.raised() && !requests_.empty() && Clock::now() < deadline) {
    move(deadline);
  }
  throw_if_aborted();
  if (failure_) {
    const std::string why = *std::exchange(failure_, std::nullopt);
    throw Error(ErrorCode::mismatch, why);
  }
  const bool any = !finished_.empty();
  for (Request* request : finished_) {
    request->operation->state = Operation::State::done;
    counters_.count(*request->operation, world_size());
    remove(*request);
  }
  finished_.clear();
  return any;
}

// Takes what TLS has already read from the system, which therefore does not report it. Returns whether there was any.
bool TcpTransport::take_unread() {
  bool any = false;
  for (int rank = 0; encrypted_ && rank < world_size(); ++rank) {
    Peer* const peer = peers_[static_cast<std::size_t>(rank)].get();
    if (peer != nullptr && has_unread(peer->stream.socket()) && peer->stream.ended().empty()) {
      any = true;
      take(rank);
    }
    if (peer != nullptr && has_unread(peer->control.socket()) && !peer->unheard) {
      any = true;
      hear(rank);
    }
  }
  return any;
}

void TcpTransport::take(int rank) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  peer.stream.take();
  if (!peer.stream.ended().empty()) {
    watch(rank, false, 0, EPOLL_CTL_DEL);
  }
}

void TcpTransport::move(Clock::time_point deadline) {
  const bool unread = take_unread();
  const auto left = unread ? 0 : std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  std::array<epoll_event, 64> events{};
  const int count = epoll_wait(poll_.fd(), events.data(), static_cast<int>(events.size()),
                               static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
  for (int i = 0; i < count; ++i) {
    const std::uint64_t what = events[static_cast<std::size_t>(i)].data.u64;
    if (what == kWake) {
      continue;  // abort_ is set and stays set
    }
    const int rank = static_cast<int>(what / 2);
    if (what % 2 == 1) {
      hear(rank);
      continue;
    }
    want(rank);
    take(rank);
  }
  for (int rank = 0; rank < world_size(); ++rank) {
    if (peers_[static_cast<std::size_t>(rank)]) {
      check_peer_ended(rank);
    }
  }
}

void TcpTransport::hear(int rank) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  for (Note& note : peer.control.take()) {
    switch (note.kind) {
      case Note::Kind::abort: abort_.set({rank, Error(ErrorCode{static_cast<int>(note.number)}, note.text)}); break;
      case Note::Kind::leave: peer.left = true; break;
      case Note::Kind::ask:
        peer.control.send({.kind = Note::Kind::answer, .number = note.number, .text = awaited_ranks()}, kNoteLimit);
        break;
      case Note::Kind::answer:
        if (note.number == question_) {
          PeerState state{.answers = true};
          for (std::size_t at = 0; at + sizeof(std::int32_t) <= note.text.size(); at += sizeof(std::int32_t)) {
            std::int32_t awaited = 0;
            std::memcpy(&awaited, note.text.data() + at, sizeof(awaited));
            state.waits_for.push_back(awaited);
          }
          answers_[static_cast<std::size_t>(rank)] = std::move(state);
        }
        break;
    }
  }
  if (peer.control.ended() && !peer.unheard) {
    peer.unheard = true;
    watch(rank, true, 0, EPOLL_CTL_DEL);
  }
}

// Says why nothing more comes from a rank that has not left.
std::string TcpTransport::loss_of(int rank, const std::string& why) const {
  const Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const std::string name = "rank " + std::to_string(rank);
  if (tls_failed(peer.stream.socket()) || tls_failed(peer.control.socket())) {
    return "what comes from " + name + " is not what it has sent (" + why +
           "): somebody on the network changes bytes, or a device on the way damages them";
  }
  return name + " is gone (" + why + "): its process ended or its host cannot be reached; what it printed says more";
}

// A rank may leave once it has everything that it needs; it is an error only if a message from it is still awaited. The
// reason is on its control connection, which ends together with the other one, or alone where its host is gone.
void TcpTransport::check_peer_ended(int rank) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const std::string& why = peer.stream.ended().empty() ? peer.control.unreachable() : peer.stream.ended();
  if (why.empty() || !peer.stream.waited_for() || abort_.raised()) {
    return;
  }
  const auto until = Clock::now() + kNoteLimit;
  while (!peer.unheard && !peer.left && !abort_.raised() && Clock::now() < until) {
    hear(rank);
    if (!peer.unheard && !peer.left && !abort_.raised()) {
      usleep(1000);
    }
  }
  if (!peer.left) {
    failed_peer_ = rank;
  }
  abort(Error(ErrorCode::transport,
              peer.left ? "rank " + std::to_string(rank) +
                              " has left while this rank still communicates with it; do all ranks make the same calls?"
                        : loss_of(rank, why),
              ErrorCause::world));
}

std::string TcpTransport::awaited_ranks() const {
  std::vector<std::int32_t> ranks;
  for (const Request& request : requests_) {
    if (request.status == Request::Status::queued && request.operation->kind == Operation::Kind::receive) {
      ranks.push_back(request.operation->peer);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return {reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(std::int32_t)};
}

std::vector<PeerState> TcpTransport::ask(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  throw_if_aborted();
  ++question_;
  std::fill(answers_.begin(), answers_.end(), std::nullopt);
  answers_[static_cast<std::size_t>(rank_)] = PeerState{.answers = true};
  for (const auto& peer : peers_) {
    if (peer && !peer->unheard) {
      peer->control.send({.kind = Note::Kind::ask, .number = question_}, kNoteLimit);
    }
  }
  const auto waits = [this](std::size_t rank) {
    return !answers_[rank] && peers_[rank] && !peers_[rank]->unheard && !peers_[rank]->left;
  };
  for (;;) {
    bool all = true;
    for (std::size_t rank = 0; rank < answers_.size(); ++rank) {
      all = all && !waits(rank);
    }
    throw_if_aborted();
    if (all || Clock::now() >= deadline) {
      break;
    }
    move(deadline);
  }
  std::vector<PeerState> peers;
  for (const auto& answer : answers_) {
    peers.push_back(answer.value_or(PeerState{}));
  }
  return peers;
}

bool TcpTransport::cancel(Operation& operation) noexcept {
  if (operation.pending() && operation.handle != nullptr) {
    auto& request = *static_cast<Request*>(operation.handle);
    try {
      peers_[static_cast<std::size_t>(operation.peer)]->stream.withdraw(request);
    } catch (const std::exception&) {  // no memory for a copy of what is half sent or received: it stays in use
      return false;
    }
    std::erase(finished_, &request);
    remove(request);
    operation.state = Operation::State::idle;
  }
  return true;
}

void TcpTransport::abort(const Error& error) noexcept {
  if (!abort_.set({rank_, error})) {
    return;
  }
  for (const auto& peer : peers_) {
    if (peer) {
      peer->control.send(
          {.kind = Note::Kind::abort, .number = static_cast<std::uint32_t>(error.code()), .text = error.what()},
          kNoteLimit);
    }
  }
  const std::uint64_t one = 1;
  static_cast<void>(!write(wake_.fd(), &one, sizeof(one)));
}

void TcpTransport::throw_if_aborted() const {
  if (abort_.raised()) {
    throw abort_.reason().as_seen_by(rank_);
  }
}

}  // namespace tcp

std::shared_ptr<Transport> make_tcp(const Rendezvous& rendezvous, const TcpOptions& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    throw Error(ErrorCode::invalid_argument, "make_tcp: rank " + std::to_string(options.rank) + " of " +
                                                 std::to_string(options.world_size) +
                                                 " ranks; ranks count from 0 to one below the world's size");
  }
  return make_shared_at_home<tcp::TcpTransport>(rendezvous, options);
}

}  // namespace gradwire::transport
