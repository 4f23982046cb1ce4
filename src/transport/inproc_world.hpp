// The shared state of ranks in one process. One mutex guards the matching of sends and receives, first in first out for
// each (source, destination, tag); the rank whose post makes a match copies the bytes, once and outside the mutex. A
// send that finds no receive is copied aside if it is small; otherwise it waits in the sender's memory.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "memory/paged_vector.hpp"
#include "transport/operations.hpp"

namespace gradwire::transport::inproc {

/// A posted operation, until its owner collects or cancels it.
struct Request {
  enum class Status { queued, copying, finished, failed };
  Operation* operation = nullptr;
  int rank = -1;  // the owner
  Status status = Status::queued;
  DType dtype = DType::f32;    // all-reduce only
  std::uint64_t sequence = 0;  // all-reduce only
  std::list<Request>::iterator self;
};

/// A send that no receive has matched yet; without a request its bytes are a copy.
struct UnmatchedSend {
  Request* request = nullptr;
  memory::PagedVector<std::byte, memory::MemoryUse::frames> bytes;
};

/// Sends or receives that wait between one source and one destination under one tag, never both kinds at once.
struct Channel {
  std::deque<UnmatchedSend> messages;
  std::deque<Request*> receives;
};

/// An all-reduce under way: the requests of the ranks.
struct Gathering {
  std::vector<Request*> members;
  int arrived = 0;
};

/// The state of one rank that other ranks see.
struct SharedRankState {
  CondVar changed;
  std::deque<Request*> finished;
  std::optional<Error> failure;
  std::unordered_map<std::uint64_t, Channel> channels;  // by source and tag
  std::uint64_t looks = 0;                              // how often its rank has polled
  bool asked = false;                                   // another rank waits to see it poll
  const std::list<Request>* requests = nullptr;         // while the transport lives
};

class InprocWorld {
 public:
  InprocWorld(int world_size, std::vector<std::uint32_t> nodes)
      : rank_states_(static_cast<std::size_t>(world_size)), nodes_(std::move(nodes)) {}
  [[nodiscard]] const std::vector<std::uint32_t>& nodes() const noexcept { return nodes_; }

  [[nodiscard]] Mutex& mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
  [[nodiscard]] SharedRankState& rank_state(int rank) REQUIRES(mutex_) {
    return rank_states_[static_cast<std::size_t>(rank)];
  }

  void throw_if_aborted(int rank) const REQUIRES(mutex_) {
    if (abort_) {
      throw abort_->as_seen_by(rank);
    }
  }
  [[nodiscard]] bool aborted() const REQUIRES(mutex_) { return abort_.has_value(); }
  void abort(AbortReason reason) REQUIRES(mutex_);
  void send(Request& request) REQUIRES(mutex_);
  void receive(Request& request) REQUIRES(mutex_);
  void all_reduce(Request& request) REQUIRES(mutex_);
  /// Takes the request out of every queue; waits while another rank copies.
  void withdraw(Request& request) REQUIRES(mutex_);

 private:
  void transfer(Request& send, Request& receive) REQUIRES(mutex_);
  void finish(Request& request) REQUIRES(mutex_);
  void fail(Request& request, const std::string& message) REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<SharedRankState> rank_states_ GUARDED_BY(mutex_);
  const std::vector<std::uint32_t> nodes_;
  std::map<std::uint64_t, Gathering> gatherings_ GUARDED_BY(mutex_);  // by sequence number
  std::optional<AbortReason> abort_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::transport::inproc
