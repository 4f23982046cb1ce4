// How the ranks of a transport over MPI tell each other that they give up, and ask which ranks are there.
#pragma once

#include <mpi.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "transport/operations.hpp"

namespace gradwire::transport {

class MpiNotices {
 public:
  using WaitsFor = std::function<std::vector<int>()>;  ///< The ranks whose messages this one awaits.

  MpiNotices() = default;
  MpiNotices(const MpiNotices&) = delete;
  MpiNotices& operator=(const MpiNotices&) = delete;
  virtual ~MpiNotices() = default;

  /// A posted receive for the transport to test; MPI_REQUEST_NULL where there is none.
  [[nodiscard]] virtual MPI_Request request() const noexcept { return MPI_REQUEST_NULL; }
  /// Reads the notice of that receive once it is complete, and posts the next receive. Answers a question with
  /// `waits_for`. Throws the Error of a receive that failed: where MPI goes on when a rank ends, the receive fails on
  /// all ranks that are left.
  virtual void take(const MPI_Status& /*status*/, int /*result*/, const WaitsFor& /*waits_for*/) {}
  /// Reads notices that arrive in other ways than by request().
  virtual void poll(const WaitsFor& /*waits_for*/) {}

  /// Asks all other ranks; their answers go into answers() as they are read.
  virtual void ask() = 0;
  [[nodiscard]] const std::vector<PeerState>& answers() const noexcept { return answers_; }

  /// Notes that this rank gives up; false if a rank did before. Any thread may call this.
  bool raise(const Error& error) noexcept { return note_.set({rank_, error}); }
  [[nodiscard]] bool raised() const noexcept { return note_.raised(); }
  /// The error that every call on this rank throws from now on; only after raised().
  [[nodiscard]] Error error() const { return note_.reason().as_seen_by(rank_); }
  /// Tells every peer, once, that this rank was the first to give up, and drives the messages for at most `limit`.
  /// Messages that are not sent by then are leaked. To be called only where MPI may be called.
  virtual void announce(std::chrono::milliseconds limit) noexcept = 0;

 protected:
  void set_rank(int rank) noexcept { rank_ = rank; }

  std::vector<PeerState> answers_;
  AbortNote note_;

 private:
  int rank_ = 0;
};

}  // namespace gradwire::transport
