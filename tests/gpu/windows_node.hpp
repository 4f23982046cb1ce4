// The ranks of a node on one GPU: each has a stream, a window and its part of a call, which the kernel over windows and
// the separate kernels compute.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device/operations.hpp"
#include "kernels/device/window_operations.hpp"
#include "tests/gpu/kernel_jobs.hpp"

namespace gradwire::gpu {

struct WindowCall {
  Case codec;
  std::uint32_t count = 0;
  bool feedback = true;
  Kind kind = Kind::plain;
  std::uint32_t most_blocks = kernels::kMostWindowBlocks;  // with few, a block has several tiles of a shard
};

/// What a rank has of a call.
struct WindowRank {
  WindowRank(const WindowCall& call, std::uint32_t rank, std::uint32_t ranks);
  DeviceCall words;
  Memory values;  // in place
  Memory local;   // residuals
  Memory owner;
};
using WindowRanks = std::vector<std::unique_ptr<WindowRank>>;
[[nodiscard]] WindowRanks make_window_ranks(const WindowCall& call, std::uint32_t ranks);

class WindowNode {
 public:
  /// With as many blocks a rank as are resident at once, or fewer.
  WindowNode(std::uint32_t ranks, std::uint32_t slot_bytes, std::uint32_t most_blocks = kernels::kMostWindowBlocks);
  ~WindowNode();
  WindowNode(const WindowNode&) = delete;
  WindowNode& operator=(const WindowNode&) = delete;

  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] kernels::WindowPlaces places(std::uint32_t rank) const;
  [[nodiscard]] kernels::WindowJob job(const WindowCall& call, std::uint32_t rank, const WindowRank& memory) const;
  [[nodiscard]] volatile kernels::WindowWords& words(std::uint32_t rank) const { return words_[rank]; }
  [[nodiscard]] cudaStream_t stream(std::uint32_t rank) const {
    return static_cast<cudaStream_t>(streams_[rank]->get());
  }
  std::uint64_t timeout_ns = 10'000'000'000;  // so that a mistake does not hang the device

 private:
  std::uint32_t ranks_;
  std::uint32_t blocks_;
  std::uint32_t slot_bytes_;
  std::vector<Memory> windows_;
  std::vector<std::unique_ptr<Stream>> streams_;
  kernels::WindowWords* words_ = nullptr;  // pinned
};

/// The bytes of a slot for the calls of so many elements.
[[nodiscard]] std::uint32_t window_slot_bytes(const Case& codec, std::uint32_t count, std::uint32_t ranks);
/// Enqueues the call of a rank.
void enqueue(const WindowNode& node, const WindowCall& call, std::uint32_t rank, const WindowRank& memory);
/// Enqueues the call of all ranks by the separate kernels on one stream; `frames` holds the frames until they have run.
void run_separately(const WindowCall& call, const WindowRanks& ranks, std::vector<Memory>& frames, cudaStream_t stream);
/// Compares two steps of a call by the kernel over windows with the separate kernels, byte for byte.
void compare_with_separate(Check& check, const WindowCall& call, std::uint32_t ranks);

// windows_failures.cpp.
/// Runs the test of windows on whole ones.
void check_windows_test(Check& check, std::uint32_t ranks, std::uint32_t slot_bytes, std::uint32_t most_blocks);
/// Runs it on windows that are mixed up, or of which one word or a whole window does not arrive. `timeout_ns`: how long
/// kernels wait for a rank, by the device's clock.
void check_lost_words(Check& check, std::uint64_t timeout_ns);
/// Lets a rank be missing until a deadline, or until a host gives up; that host's kernels wait `host_timeout_ns` at
/// most (0: for ever).
void check_missing_rank(Check& check, std::uint32_t count, std::uint64_t timeout_ns, std::uint64_t host_timeout_ns);
/// Lets a rank be late, but come before the deadline.
void check_late_rank(Check& check, std::uint32_t count);
/// Lets one rank make another call than the others.
void check_other_call(Check& check);

}  // namespace gradwire::gpu
