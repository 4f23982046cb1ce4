// Ranks as threads of one process. One mutex guards the matching of sends and receives, first in first out for each
// (source, destination, tag); the rank whose post makes a match copies the bytes, once and outside the mutex. A send
// that finds no receive is copied aside if it is small, else it waits where it is.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "gradwire/transport.hpp"
#include "transport/operations.hpp"

namespace gradwire {
namespace {

using transport::AbortReason;

constexpr std::uint64_t kEagerBytes = 8192;  // larger sends are never buffered
constexpr std::uint64_t kSumBytes = 16384;   // an all-reduce sums in blocks that stay in the cache

/// A posted operation, until its owner collects or cancels it.
struct Request {
  enum class Stage { queued, copying, finished, failed };
  Operation* operation = nullptr;
  int rank = -1;  // the owner
  Stage stage = Stage::queued;
  DType dtype = DType::f32;    // of an all-reduce
  std::uint64_t sequence = 0;  // of an all-reduce
  std::list<Request>::iterator self;
};

/// A send that no receive has met yet; without a request its bytes are a copy.
struct Message {
  Request* request = nullptr;
  std::vector<std::byte> bytes;
};

/// What waits between one source and one destination under one tag: never both kinds at once.
struct Channel {
  std::deque<Message> messages;
  std::deque<Request*> receives;
};

/// An all-reduce under way: what each rank posted.
struct Gathering {
  std::vector<Request*> members;
  int arrived = 0;
};

/// What others know of one rank.
struct Mailbox {
  std::condition_variable changed;
  std::deque<Request*> finished;
  std::optional<Error> failure;
  std::unordered_map<std::uint64_t, Channel> channels;  // by source and tag
  std::uint64_t looks = 0;                              // how often its rank has asked for progress
  bool asked = false;                                   // by a rank that waits to see it look
  const std::list<Request>* requests = nullptr;         // while the transport lives
};

std::uint64_t channel_key(int source, Tag tag) { return static_cast<std::uint64_t>(source) << 32U | tag; }

template <class T>
void sum_in_rank_order(const std::vector<Request*>& members, std::uint64_t count) {
  constexpr std::uint64_t kBlock = kSumBytes / sizeof(T);
  std::vector<T> sum(std::min(count, kBlock));
  const auto values = [](Request* member) { return reinterpret_cast<T*>(member->operation->data); };
  for (std::uint64_t begin = 0; begin < count; begin += kBlock) {
    const std::uint64_t size = std::min(kBlock, count - begin);
    std::copy_n(values(members[0]) + begin, size, sum.begin());
    for (std::size_t rank = 1; rank < members.size(); ++rank) {
      const T* addend = values(members[rank]) + begin;
      for (std::uint64_t i = 0; i < size; ++i) {
        sum[i] += addend[i];
      }
    }
    for (Request* member : members) {
      std::copy_n(sum.begin(), size, values(member) + begin);
    }
  }
}

class World {
 public:
  World(int world_size, std::vector<std::uint32_t> nodes)
      : mailboxes_(static_cast<std::size_t>(world_size)), nodes_(std::move(nodes)) {}
  [[nodiscard]] const std::vector<std::uint32_t>& nodes() const noexcept { return nodes_; }

  using Lock = std::unique_lock<std::mutex>;
  [[nodiscard]] Lock lock() { return Lock(mutex_); }
  [[nodiscard]] Mailbox& mailbox(int rank) { return mailboxes_[static_cast<std::size_t>(rank)]; }

  // All below: with the lock held.
  void throw_if_aborted(int rank) const {
    if (abort_) {
      throw abort_->as_seen_by(rank);
    }
  }
  [[nodiscard]] bool aborted() const { return abort_.has_value(); }
  void abort(AbortReason reason);
  void send(Lock& lock, Request& request);
  void receive(Lock& lock, Request& request);
  void all_reduce(Lock& lock, Request& request);
  /// Takes the request out of every queue; waits while another rank copies.
  void withdraw(Lock& lock, Request& request);

 private:
  void transfer(Lock& lock, Request& send, Request& receive);
  void finish(Request& request);
  void fail(Request& request, const std::string& message);

  std::mutex mutex_;
  std::vector<Mailbox> mailboxes_;
  const std::vector<std::uint32_t> nodes_;
  std::map<std::uint64_t, Gathering> gatherings_;  // by sequence number
  std::optional<AbortReason> abort_;
};

void World::abort(AbortReason reason) {
  if (!abort_) {
    abort_ = std::move(reason);
    for (Mailbox& mailbox : mailboxes_) {
      mailbox.changed.notify_all();
    }
  }
}

void World::finish(Request& request) {
  request.stage = Request::Stage::finished;
  mailbox(request.rank).finished.push_back(&request);
  mailbox(request.rank).changed.notify_all();
}

void World::fail(Request& request, const std::string& message) {
  request.stage = Request::Stage::failed;
  Mailbox& own = mailbox(request.rank);
  if (!own.failure) {
    own.failure.emplace(ErrorCode::mismatch, message);
  }
  own.changed.notify_all();
}

void World::transfer(Lock& lock, Request& send, Request& receive) {
  const Operation& from = *send.operation;
  const Operation& to = *receive.operation;
  if (from.bytes != to.bytes) {
    fail(receive, transport::describe_mismatch(to, std::to_string(from.bytes)));
    finish(send);
    return;
  }
  if (from.bytes != 0) {
    send.stage = receive.stage = Request::Stage::copying;
    lock.unlock();
    std::memcpy(to.data, from.data, from.bytes);
    lock.lock();
  }
  finish(receive);
  finish(send);
}

void World::send(Lock& lock, Request& request) {
  const Operation& operation = *request.operation;
  auto& channels = mailbox(operation.peer).channels;
  const auto at = channels.try_emplace(channel_key(request.rank, operation.tag)).first;
  Channel& channel = at->second;
  if (!channel.receives.empty()) {
    Request& receive = *channel.receives.front();
    channel.receives.pop_front();
    if (channel.receives.empty()) {
      channels.erase(at);
    }
    transfer(lock, request, receive);
  } else if (operation.bytes <= kEagerBytes) {
    channel.messages.push_back({nullptr, {operation.data, operation.data + operation.bytes}});
    finish(request);
  } else {
    channel.messages.push_back({&request, {}});
  }
}

void World::receive(Lock& lock, Request& request) {
  const Operation& operation = *request.operation;
  auto& channels = mailbox(request.rank).channels;
  const auto at = channels.try_emplace(channel_key(operation.peer, operation.tag)).first;
  Channel& channel = at->second;
  if (channel.messages.empty()) {
    channel.receives.push_back(&request);
    return;
  }
  const Message message = std::move(channel.messages.front());
  channel.messages.pop_front();
  if (channel.messages.empty()) {
    channels.erase(at);
  }
  if (message.request != nullptr) {
    transfer(lock, *message.request, request);
  } else if (message.bytes.size() != operation.bytes) {
    fail(request, transport::describe_mismatch(operation, std::to_string(message.bytes.size())));
  } else {
    std::copy(message.bytes.begin(), message.bytes.end(), operation.data);
    finish(request);
  }
}

void World::all_reduce(Lock& lock, Request& request) {
  Gathering& gathering = gatherings_[request.sequence];
  gathering.members.resize(mailboxes_.size());
  gathering.members[static_cast<std::size_t>(request.rank)] = &request;
  if (++gathering.arrived < static_cast<int>(mailboxes_.size())) {
    return;
  }
  const std::vector<Request*> members = std::move(gathering.members);
  gatherings_.erase(request.sequence);
  for (Request* member : members) {
    if (member == nullptr) {
      return;  // a rank cancelled: the others never finish, and cancel or abort too
    }
  }
  for (Request* member : members) {
    if (member->operation->bytes != request.operation->bytes || member->dtype != request.dtype) {
      for (Request* each : members) {
        fail(*each, "native all-reduce: rank " + std::to_string(member->rank) + " gave " +
                        std::to_string(member->operation->bytes) + " bytes of " +
                        std::string(to_string(member->dtype)) + ", rank " + std::to_string(request.rank) + " gave " +
                        std::to_string(request.operation->bytes) + " bytes of " +
                        std::string(to_string(request.dtype)));
      }
      return;
    }
  }
  for (Request* member : members) {
    member->stage = Request::Stage::copying;
  }
  lock.unlock();
  const std::uint64_t count = request.operation->bytes / element_bytes(request.dtype);
  request.dtype == DType::f32 ? sum_in_rank_order<float>(members, count) : sum_in_rank_order<double>(members, count);
  lock.lock();
  for (Request* member : members) {
    finish(*member);
  }
}

void World::withdraw(Lock& lock, Request& request) {
  Mailbox& own = mailbox(request.rank);
  own.changed.wait(lock, [&] { return request.stage != Request::Stage::copying; });
  std::erase(own.finished, &request);
  if (request.stage != Request::Stage::queued) {
    return;
  }
  const Operation& operation = *request.operation;
  if (operation.kind == Operation::Kind::all_reduce) {
    if (const auto at = gatherings_.find(request.sequence); at != gatherings_.end()) {  // gone when a member gave up
      at->second.members[static_cast<std::size_t>(request.rank)] = nullptr;
    }
  } else if (operation.kind == Operation::Kind::receive) {
    std::erase(own.channels[channel_key(operation.peer, operation.tag)].receives, &request);
  } else {
    std::erase_if(mailbox(operation.peer).channels[channel_key(request.rank, operation.tag)].messages,
                  [&](const Message& message) { return message.request == &request; });
  }
}

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<World> world, int rank, int world_size)
      : world_(std::move(world)), rank_(rank), world_size_(world_size) {
    const auto lock = world_->lock();
    world_->mailbox(rank_).requests = &requests_;
  }
  ~InprocTransport() override {
    auto lock = world_->lock();
    world_->mailbox(rank_).requests = nullptr;
    for (Request& request : requests_) {
      world_->withdraw(lock, request);
    }
  }

  [[nodiscard]] std::string name() const override { return "inproc"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return world_size_; }
  [[nodiscard]] TransportCapabilities capabilities() const override {
    return {
        .native_all_reduce_f32 = true, .native_all_reduce_f64 = true, .checksum_by_default = false, .emulation = {}};
  }

  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return world_->nodes(); }

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    auto lock = world_->lock();
    world_->throw_if_aborted(rank_);
    transport::begin_send(operation, *this, peer, tag, data);
    world_->send(lock, add(operation));
  }

  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    auto lock = world_->lock();
    world_->throw_if_aborted(rank_);
    transport::begin_receive(operation, *this, peer, tag, data);
    world_->receive(lock, add(operation));
  }

  void post_all_reduce(Operation& operation, View data) override {
    auto lock = world_->lock();
    world_->throw_if_aborted(rank_);
    transport::begin_all_reduce(operation, *this, data);
    Request& request = add(operation);
    request.dtype = data.dtype;
    request.sequence = next_all_reduce_++;
    world_->all_reduce(lock, request);
  }

  bool progress(std::chrono::microseconds wait) override {
    Mailbox& own = world_->mailbox(rank_);
    auto lock = world_->lock();
    const auto look = [&own] {
      ++own.looks;
      own.asked = false;
    };
    look();
    if (!requests_.empty() && wait.count() > 0) {
      own.changed.wait_for(lock, transport::bounded(wait), [&] {
        if (own.asked) {
          look();
        }
        return !own.finished.empty() || own.failure || world_->aborted();
      });
    }
    world_->throw_if_aborted(rank_);
    if (own.failure) {
      const Error failure = *std::exchange(own.failure, std::nullopt);
      throw failure;
    }
    const bool any = !own.finished.empty();
    for (Request* request : own.finished) {
      request->operation->state = Operation::State::done;
      counters_.count(*request->operation, world_size_);
      remove(*request);
    }
    own.finished.clear();
    return any;
  }

  // Whoever looks for progress meanwhile is there.
  [[nodiscard]] std::vector<PeerState> ask(std::chrono::milliseconds limit) override {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::vector<PeerState> peers(static_cast<std::size_t>(world_size_));
    auto lock = world_->lock();
    std::vector<std::uint64_t> looks;
    for (int rank = 0; rank < world_size_; ++rank) {
      Mailbox& other = world_->mailbox(rank);
      looks.push_back(other.looks);
      other.asked = rank != rank_;
      other.changed.notify_all();
    }
    Mailbox& own = world_->mailbox(rank_);
    for (;;) {
      ++own.looks;  // others may be asking too
      world_->throw_if_aborted(rank_);
      bool all = true;
      for (int rank = 0; rank < world_size_; ++rank) {
        PeerState& peer = peers[static_cast<std::size_t>(rank)];
        const Mailbox& other = world_->mailbox(rank);
        peer.answers = other.looks != looks[static_cast<std::size_t>(rank)];
        peer.waits_for = awaited_by(other);
        all = all && peer.answers;
      }
      if (all || std::chrono::steady_clock::now() >= deadline) {
        return peers;
      }
      own.changed.wait_for(lock, std::chrono::milliseconds(1));
    }
  }

  bool cancel(Operation& operation) noexcept override {
    if (operation.pending() && operation.handle != nullptr) {
      auto& request = *static_cast<Request*>(operation.handle);
      auto lock = world_->lock();
      world_->withdraw(lock, request);
      remove(request);
      operation.state = Operation::State::idle;
    }
    return true;
  }

  void abort(ErrorCode code, const std::string& message) noexcept override {
    const auto lock = world_->lock();
    world_->abort({rank_, code, message});
  }

  [[nodiscard]] TransportCounters counters() const override { return counters_.read(); }

 private:
  static std::vector<int> awaited_by(const Mailbox& other) {
    std::vector<int> ranks;
    if (other.requests == nullptr) {
      return ranks;
    }
    for (const Request& request : *other.requests) {
      if (request.stage == Request::Stage::queued && request.operation->kind == Operation::Kind::receive) {
        ranks.push_back(request.operation->peer);
      }
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

  Request& add(Operation& operation) {
    requests_.emplace_front();
    Request& request = requests_.front();
    request.operation = &operation;
    request.rank = rank_;
    request.self = requests_.begin();
    operation.handle = &request;
    return request;
  }

  void remove(Request& request) {
    request.operation->handle = nullptr;
    requests_.erase(request.self);
  }

  std::shared_ptr<World> world_;
  int rank_;
  int world_size_;
  std::list<Request> requests_;
  std::uint64_t next_all_reduce_ = 0;
  transport::Counters counters_;
};

}  // namespace

std::vector<std::shared_ptr<Transport>> make_inproc_world(int world_size, const std::vector<std::uint32_t>& nodes) {
  if (world_size < 1) {
    throw Error(ErrorCode::invalid_argument,
                "make_inproc_world: a world has at least 1 rank, not " + std::to_string(world_size));
  }
  if (!nodes.empty() && nodes.size() != static_cast<std::size_t>(world_size)) {
    throw Error(ErrorCode::invalid_argument, "make_inproc_world: " + std::to_string(nodes.size()) + " nodes for " +
                                                 std::to_string(world_size) + " ranks; give one for each, or none");
  }
  const auto world = std::make_shared<World>(world_size, nodes);
  std::vector<std::shared_ptr<Transport>> transports;
  transports.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    transports.push_back(std::make_shared<InprocTransport>(world, rank, world_size));
  }
  return transports;
}

}  // namespace gradwire
