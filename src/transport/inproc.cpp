// Ranks as threads of one process.
#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "base/forked.hpp"
#include "gradwire/transport.hpp"
#include "transport/inproc_world.hpp"
#include "transport/operations.hpp"

namespace gradwire {
namespace {

using transport::inproc::InprocWorld;
using transport::inproc::Request;
using transport::inproc::SharedRankState;

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<InprocWorld> world, int rank, int world_size)
      : world_(std::move(world)), rank_(rank), world_size_(world_size) {
    const MutexLock lock(world_->mutex());
    world_->rank_state(rank_).requests = &requests_;
  }
  ~InprocTransport() override {
    const MutexLock lock(world_->mutex());
    world_->rank_state(rank_).requests = nullptr;
    for (Request& request : requests_) {
      world_->withdraw(request);
    }
  }

  [[nodiscard]] std::string name() const override { return "inproc"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return world_size_; }
  [[nodiscard]] TransportCapabilities capabilities() const override {
    return {.native_all_reduce_f32 = true,
            .native_all_reduce_f64 = true,
            .checksum_by_default = false,
            .receives_at_most = true,
            .emulation = {}};
  }

  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return world_->nodes(); }

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    const MutexLock lock(world_->mutex());
    world_->throw_if_aborted(rank_);
    transport::begin_send(operation, *this, peer, tag, data);
    world_->send(add(operation));
  }

  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, false);
  }
  void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, true);
  }

  void post_all_reduce(Operation& operation, View data) override {
    const MutexLock lock(world_->mutex());
    world_->throw_if_aborted(rank_);
    transport::begin_all_reduce(operation, *this, data);
    Request& request = add(operation);
    request.dtype = data.dtype;
    request.sequence = next_all_reduce_++;
    world_->all_reduce(request);
  }

  bool progress(std::chrono::microseconds wait) override {
    const MutexLock lock(world_->mutex());
    SharedRankState& own = world_->rank_state(rank_);
    const auto look = [&own] {
      ++own.looks;
      own.asked = false;
    };
    look();
    if (!requests_.empty() && wait.count() > 0) {
      own.changed.wait_for(world_->mutex(), transport::bounded(wait), [&]() REQUIRES(world_->mutex()) {
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

  // A rank that calls progress() or ask() meanwhile is there.
  [[nodiscard]] std::vector<PeerState> ask(std::chrono::milliseconds limit) override {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::vector<PeerState> peers(static_cast<std::size_t>(world_size_));
    const MutexLock lock(world_->mutex());
    std::vector<std::uint64_t> looks;
    for (int rank = 0; rank < world_size_; ++rank) {
      SharedRankState& other = world_->rank_state(rank);
      looks.push_back(other.looks);
      other.asked = rank != rank_;
      other.changed.notify_all();
    }
    SharedRankState& own = world_->rank_state(rank_);
    for (;;) {
      ++own.looks;  // other ranks may be asking too
      world_->throw_if_aborted(rank_);
      bool all = true;
      for (int rank = 0; rank < world_size_; ++rank) {
        PeerState& peer = peers[static_cast<std::size_t>(rank)];
        const SharedRankState& other = world_->rank_state(rank);
        peer.answers = other.looks != looks[static_cast<std::size_t>(rank)];
        peer.waits_for = awaited_by(other);
        all = all && peer.answers;
      }
      if (all || std::chrono::steady_clock::now() >= deadline) {
        return peers;
      }
      own.changed.wait_for(world_->mutex(), std::chrono::milliseconds(1));
    }
  }

  bool cancel(Operation& operation) noexcept override {
    if (operation.pending() && operation.handle != nullptr) {
      auto& request = *static_cast<Request*>(operation.handle);
      const MutexLock lock(world_->mutex());
      world_->withdraw(request);
      remove(request);
      operation.state = Operation::State::idle;
    }
    return true;
  }

  void abort(const Error& error) noexcept override {
    const MutexLock lock(world_->mutex());
    world_->abort({rank_, Error(error.code(), error.what(), error.cause())});  // a text that no other thread frees
  }

  [[nodiscard]] TransportCounters counters() const override { return counters_.read(); }

 private:
  void receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most) {
    const MutexLock lock(world_->mutex());
    world_->throw_if_aborted(rank_);
    transport::begin_receive(operation, *this, peer, tag, data, at_most);
    world_->receive(add(operation));
  }

  static std::vector<int> awaited_by(const SharedRankState& other) {
    std::vector<int> ranks;
    if (other.requests == nullptr) {
      return ranks;
    }
    for (const Request& request : *other.requests) {
      if (request.status == Request::Status::queued && request.operation->kind == Operation::Kind::receive) {
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

  std::shared_ptr<InprocWorld> world_;
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
  const auto world = std::make_shared<InprocWorld>(world_size, nodes);
  std::vector<std::shared_ptr<Transport>> transports;
  transports.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    transports.push_back(make_shared_at_home<InprocTransport>(world, rank, world_size));
  }
  return transports;
}

}  // namespace gradwire
