// How one rank tells the others that it gives up: a small message on a communicator of its own, which every rank has
// a receive posted for.
#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>

#include "transport/operations.hpp"

namespace gradwire::transport {

class MpiAbortChannel {
 public:
  /// Duplicates `comm`: collective.
  MpiAbortChannel(MPI_Comm comm, int rank, int world_size);

  /// The posted receive, for the caller to test; MPI_REQUEST_NULL in a world of one.
  [[nodiscard]] MPI_Request request() const noexcept { return request_; }
  /// What the completed receive says.
  [[nodiscard]] AbortReason read(const MPI_Status& status) const;

  /// Sends to every peer and drives the messages for at most `limit`. What is not out by then is leaked.
  void announce(const AbortReason& reason, std::chrono::milliseconds limit) noexcept;

  /// Takes the receive back and frees the communicator; false where that would block. Then, and where close is never
  /// called, this object must be leaked.
  [[nodiscard]] bool close() noexcept;

 private:
  static constexpr std::size_t kBytes = 1024;  // one byte of code, the rest text
  using Buffer = std::array<char, kBytes>;

  int rank_;
  int world_size_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  Buffer incoming_{};
};

/// Cancels posted receives and waits for them, briefly. True: all are complete and null; false: some may still write.
[[nodiscard]] bool cancel_receives(MPI_Request* requests, int count) noexcept;
/// Tests until all are complete, for at most `limit`.
[[nodiscard]] bool finish_all(MPI_Request* requests, int count, std::chrono::milliseconds limit) noexcept;

}  // namespace gradwire::transport
