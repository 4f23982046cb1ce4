// The text that char_lm learns: the joined files, with bytes replaced by numbers, as a training part and a held-out
// part of blocks from all over the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace char_lm {

struct Text {
  std::vector<std::string> files;        // as read, in order
  std::vector<std::uint8_t> symbols;     // held-out blocks last; each byte replaced by its index in `vocabulary`
  std::vector<std::uint8_t> vocabulary;  // the bytes that occur, ascending
  std::size_t training_count = 0;        // symbols before this index are for training, the rest is held out

  [[nodiscard]] std::span<const std::uint8_t> training() const { return std::span(symbols).first(training_count); }
  [[nodiscard]] std::span<const std::uint8_t> held_out() const { return std::span(symbols).subspan(training_count); }
  /// Returns rank `rank`'s part of the training text. The parts are contiguous and do not overlap.
  [[nodiscard]] std::span<const std::uint8_t> shard(int rank, int world_size) const;
};

/// Returns the licence texts that every Debian system has, with links resolved and each file once, sorted by name.
/// Throws std::runtime_error if there are none.
[[nodiscard]] std::vector<std::filesystem::path> licence_files();

/// Reads and joins `files`. Throws std::runtime_error for a file that cannot be read and for a text whose held-out part
/// or whose training part divided by `world_size` is shorter than one window of `context` + 1 bytes.
[[nodiscard]] Text load_text(const std::vector<std::filesystem::path>& files, double held_out_fraction,
                             std::size_t context, int world_size);

}  // namespace char_lm
