// Whether and why the ranks have given up, and how one tells the others: by a small message on a communicator of its
// own, which every rank has a receive posted for.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>

#include "transport/operations.hpp"

namespace gradwire::transport {

class MpiAbortChannel {
 public:
  /// Duplicates `comm`: collective.
  MpiAbortChannel(MPI_Comm comm, int rank, int world_size);

  /// The posted receive, for the caller to test; MPI_REQUEST_NULL in a world of one.
  [[nodiscard]] MPI_Request request() const noexcept { return request_; }
  /// Notes what the completed receive says.
  void take(const MPI_Status& status);

  /// Notes that this rank gives up; false if some rank did before. Any thread.
  bool raise(ErrorCode code, const std::string& message) noexcept;
  [[nodiscard]] bool raised() const noexcept { return raised_; }
  /// Once, if this rank was the first to give up: tells every peer, and drives the messages for at most `limit`. What
  /// is not out by then is leaked. Only where MPI may be called.
  void announce(std::chrono::milliseconds limit) noexcept;
  /// The error that every call on this rank throws from now on; only after raised().
  [[nodiscard]] Error error() const;

  /// Takes the receive back and frees the communicator; false where that would block. Then, and where close is never
  /// called, this object must be leaked.
  [[nodiscard]] bool close() noexcept;

 private:
  static constexpr std::size_t kBytes = 1024;  // one byte of code, the rest text
  using Buffer = std::array<char, kBytes>;

  bool set(AbortReason reason) noexcept;
  void send(const AbortReason& reason, std::chrono::milliseconds limit) const noexcept;

  int rank_;
  int world_size_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  Buffer incoming_{};

  std::atomic<bool> raised_ = false;
  std::atomic<bool> announced_ = false;
  mutable std::mutex mutex_;
  std::optional<AbortReason> reason_;
};

/// Cancels posted receives and waits for them, briefly. True: all are complete and null; false: some may still write.
[[nodiscard]] bool cancel_receives(MPI_Request* requests, int count) noexcept;
/// Tests until all are complete, for at most `limit`.
[[nodiscard]] bool finish_all(MPI_Request* requests, int count, std::chrono::milliseconds limit) noexcept;

}  // namespace gradwire::transport
