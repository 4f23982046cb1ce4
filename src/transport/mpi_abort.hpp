// Whether and why the ranks have given up. A rank tells the others by a small message on a communicator of the
// channel's own, for which every rank has a receive posted. Ranks ask each other in the same way whether they are
// there.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transport/mpi_notices.hpp"

namespace gradwire::transport {

class MpiAbortChannel final : public MpiNotices {
 public:
  /// `comm` belongs to the channel.
  MpiAbortChannel(MPI_Comm comm, int rank, int world_size);

  /// The posted receive; MPI_REQUEST_NULL in a world of one, and once ranks have given up.
  [[nodiscard]] MPI_Request request() const noexcept override { return request_; }
  void take(const MPI_Status& status, int result, const WaitsFor& waits_for) override;
  void ask() override;
  void announce(std::chrono::milliseconds limit) noexcept override;

  /// Cancels the receive; false where that would block. In that case, and where close() is never called, this object
  /// must be leaked.
  [[nodiscard]] bool close() noexcept;
  /// Frees the communicator, after close(). Collective.
  void free() noexcept { MPI_Comm_free(&comm_); }
  [[nodiscard]] MPI_Comm communicator() const noexcept { return comm_; }

 private:
  static constexpr std::size_t kBytes = 1024;      // one byte of code, the rest text
  static constexpr unsigned char kQuestion = 254;  // u32 number of the question
  static constexpr unsigned char kAnswer = 255;    // the same, then an int for each rank that it waits for
  using Buffer = std::array<char, kBytes>;

  void post();
  void take_answer(int peer, int size);
  void send(std::span<const int> peers, std::span<const char> bytes, std::chrono::milliseconds limit) const noexcept;
  [[nodiscard]] std::vector<int> others() const;

  int rank_;
  int world_size_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  Buffer incoming_{};
  std::uint32_t question_ = 0;  // number of this rank's latest question
  std::atomic<bool> announced_ = false;
};

/// Cancels posted receives and waits for them, briefly. True: all are complete and null; false: some may still write.
[[nodiscard]] bool cancel_receives(MPI_Request* requests, int count) noexcept;
/// Tests until all requests are complete, for at most `limit`.
[[nodiscard]] bool finish_all(MPI_Request* requests, int count, std::chrono::milliseconds limit) noexcept;

}  // namespace gradwire::transport
