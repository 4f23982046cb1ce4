// The ranks of a node over windows, under the emulator: the same calls by the kernel over windows and by the separate
// kernels, whose bytes must be equal.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "device_support.hpp"
#include "kernels/device/window_check.hpp"
#include "kernels/device/window_operations.hpp"
#include "simt_streams.hpp"

namespace gradwire::test {

inline constexpr std::uint32_t kTile = kernels::kTileElements;

/// One all-reduce of all ranks.
struct WindowCall {
  const char* codec = "int8";
  std::uint32_t count = 0;
  DType dtype = DType::f32;
  bool feedback = true;
  double divisor = 1;
  Kind kind = Kind::plain;
  bool in_place = true;
  std::uint32_t begin_tile = 0;  // of the chunk in each shard
  std::uint32_t most_tiles = 0;  // of a chunk; 0: all
  bool in_pieces = false;        // the kernel over windows gets tables of pieces of the arrays

  [[nodiscard]] std::string text(std::uint32_t ranks) const {
    return std::string(codec) + " " + std::string(to_string(dtype)) + " x " + std::to_string(count) + ", " +
           std::to_string(ranks) + " ranks" + (feedback ? ", feedback" : "") + (in_place ? "" : ", apart") +
           (in_pieces ? ", in pieces" : "") + ", kind " + std::to_string(static_cast<int>(kind)) + ", from tile " +
           std::to_string(begin_tile);
  }
};

/// What a rank has of a call. It is made twice, for both ways to compute it.
struct WindowRank {
  WindowRank(const WindowCall& call, std::uint32_t rank, std::uint32_t ranks, std::uint32_t step);
  codec::Codec codec;
  Call words;
  Memory input;
  Memory output;
  Memory local;  // residuals
  Memory owner;
  bool in_place;
  std::vector<kernels::Piece> pieces[2] = {};  // of the input and the output
  [[nodiscard]] void* out() { return in_place ? input.data() : output.data(); }
};

/// The ranks and their windows.
class WindowNode {
 public:
  static constexpr std::uint32_t kMark = 0x5A5A5A5AU;  // what slots hold before they are written

  WindowNode(std::uint32_t ranks, std::uint32_t blocks, std::uint32_t slot_bytes, std::uint32_t epoch = 0);

  [[nodiscard]] kernels::WindowPlaces places(std::uint32_t rank);
  [[nodiscard]] kernels::WindowJob job(const WindowCall& call, std::uint32_t rank, WindowRank& memory);
  [[nodiscard]] Memory& window(std::uint32_t rank) { return windows_[rank]; }
  [[nodiscard]] kernels::WindowWords& words(std::uint32_t rank) { return words_[rank]; }
  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }
  void share(emulator::Streams& streams);
  /// A name for the stream of a rank.
  [[nodiscard]] void* stream(std::uint32_t rank) { return &words_[rank]; }
  std::uint64_t timeout_ns = 0;

 private:
  [[nodiscard]] kernels::WindowShape shape(std::uint32_t rank) const {
    return {.ranks = ranks_, .rank = rank, .blocks = blocks_, .slot_bytes = slot_bytes_};
  }
  std::uint32_t ranks_;
  std::uint32_t blocks_;
  std::uint32_t slot_bytes_;
  std::vector<Memory> windows_;
  std::vector<kernels::WindowWords> words_;
};

/// The frames of a call as the separate kernels make them: [source][shard], and those of the sums.
struct SeparateFrames {
  std::vector<std::vector<std::vector<std::byte>>> parts;
  std::vector<std::vector<std::byte>> sums;
};

/// Computes the call by the separate kernels.
SeparateFrames run_separately(const WindowNode& node, const WindowCall& call,
                              std::vector<std::unique_ptr<WindowRank>>& ranks);

/// The bytes of a slot that a chunk of so many elements needs.
[[nodiscard]] std::uint32_t slot_bytes_for(const char* codec, std::uint32_t elements);
[[nodiscard]] std::vector<std::unique_ptr<WindowRank>> make_ranks(const WindowCall& call, std::uint32_t ranks,
                                                                  std::uint32_t step);
/// Expects equal results, residuals and status.
void expect_equal(std::vector<std::unique_ptr<WindowRank>>& got, std::vector<std::unique_ptr<WindowRank>>& wanted);
/// Expects the frames in the windows to be those of the separate kernels. Nothing behind them may have been stored, and
/// no byte by two blocks.
void expect_frames(WindowNode& node, const WindowCall& call, const SeparateFrames& wanted,
                   const emulator::Streams& streams);

}  // namespace gradwire::test
