// All-reduces inside a node by one kernel on each rank, over windows (kernels/device/window_reduce.hpp), instead of a
// lane's messages and kernels. It decides which calls take that way, the same on every rank, and makes their jobs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "exchange/stream/stream_executor.hpp"
#include "kernels/device/window_job.hpp"
#include "memory/peer_windows.hpp"

namespace gradwire::exchange {

/// What a rank sends another one in a lane at most, with chunks as stream_chunks() cuts them.
inline constexpr std::uint32_t kWindowSlotBytes = kMostChunkBytes;
static_assert(kWindowSlotBytes % 16 == 0);

/// The number of blocks of a rank's kernels, so that those of all ranks of a device are resident at once; 0: they do
/// not fit. `resident`: how many the device can run; `taken`: how many other windows have there.
[[nodiscard]] std::uint32_t window_blocks(std::uint32_t resident, std::uint32_t ranks_of_device,
                                          std::uint32_t taken = 0) noexcept;

/// Whether there is a kernel over windows for calls with these codecs of the two hops.
[[nodiscard]] bool has_window_kernel(const codec::Codec& first, const codec::Codec& second);

/// Blocks that the kernels over one communicator's windows may take of a GPU, until this is destroyed. Communicators
/// count each other's reservations, so that the kernels of all are resident at once.
class BlockReservation {
 public:
  /// `reserved` is the sum of this process's reservations on the GPU. It must outlive this, and any thread may use it.
  BlockReservation(std::atomic<std::uint32_t>& reserved, std::uint32_t blocks) : reserved_(reserved), blocks_(blocks) {
    reserved_ += blocks;
  }
  ~BlockReservation() { reserved_ -= blocks_; }
  BlockReservation(const BlockReservation&) = delete;
  BlockReservation& operator=(const BlockReservation&) = delete;

  [[nodiscard]] std::uint32_t blocks() const noexcept { return blocks_; }
  /// Gives back all but `blocks`, which are no more than it has.
  void shrink(std::uint32_t blocks) noexcept {
    reserved_ -= blocks_ - blocks;
    blocks_ = blocks;
  }

 private:
  std::atomic<std::uint32_t>& reserved_;
  std::uint32_t blocks_;
};

class WindowCalls {
 public:
  /// Windows of at least window_bytes(shape), the same shape on every rank but for its rank. `words` is pinned host
  /// memory that outlives this, and `timeout` how long a kernel waits for a rank; 0: for ever. `reservation` is kept as
  /// long as this; null: nobody counts the blocks.
  WindowCalls(std::unique_ptr<memory::PeerWindows> windows, const kernels::WindowShape& shape,
              kernels::WindowWords& words, std::chrono::milliseconds timeout,
              std::unique_ptr<BlockReservation> reservation = nullptr);
  ~WindowCalls();
  WindowCalls(const WindowCalls&) = delete;
  WindowCalls& operator=(const WindowCalls&) = delete;

  [[nodiscard]] const kernels::WindowPlaces& places() const noexcept { return places_; }
  /// Whether each lane of the call is one kernel. No rank's memory decides, only what all ranks agree on.
  [[nodiscard]] bool takes(const Schedule& schedule, const StreamTask& task) const;
  /// The job of one of its lanes.
  [[nodiscard]] kernels::WindowJob job(const Lane& lane, const StreamTask& task) const;

  /// Ends kernels that wait. Any thread may call this.
  void abort() const noexcept;
  /// Error(timeout) where a kernel has waited in vain for a rank. Kernels may run meanwhile.
  void check() const;

 private:
  std::unique_ptr<BlockReservation> reservation_;
  std::unique_ptr<memory::PeerWindows> windows_;
  kernels::WindowPlaces places_;
  std::chrono::milliseconds timeout_;
};

}  // namespace gradwire::exchange
