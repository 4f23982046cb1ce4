// Saved values as packed pieces. A piece holds values of one size: u32 bytes of the values, u8 bytes of each value (1,
// 2, 4 or 8), u32 stored bytes, and these: the values as they are, or else packed by their byte planes
// (codec/byte_planes.hpp). docs/reference/state-format.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "codec/byte_planes.hpp"
#include "gradwire/error.hpp"
#include "memory/paged_vector.hpp"

namespace gradwire::codec {

inline constexpr std::size_t kPieceHeadBytes = 9;

/// Throws Error(unsupported) without libzstd; its text says how to save files that are not packed.
void require_packing();

/// Cuts values into pieces of at most 1 MiB. It needs require_packing().
class PieceWriter {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;
  explicit PieceWriter(Sink sink) : sink_(std::move(sink)) {}

  /// Adds values of `bytes_each` bytes: 1, 2, 4 or 8. Values that follow others of their size share a piece with them.
  void put(std::span<const std::byte> values, std::size_t bytes_each);
  /// Writes the last piece.
  void flush();

 private:
  Sink sink_;
  memory::ScratchVector<std::byte> piece_;
  std::size_t filled_ = 0;
  std::size_t bytes_each_ = 1;
};

/// Reads what a PieceWriter wrote, in spans of any size, and trusts no bytes.
class PieceReader {
 public:
  /// Fills a span, or throws.
  using Source = std::function<void(std::span<std::byte>)>;
  /// The text of an error is `name`, what is wrong, `advice`.
  PieceReader(Source source, std::string name, std::string advice)
      : source_(std::move(source)), name_(std::move(name)), advice_(std::move(advice)) {}

  /// Error(corrupt) for damage, Error(unsupported) without libzstd. A reader that failed gives the same error again.
  void read(std::span<std::byte> to);
  /// Returns the bytes of the piece that read() has not returned yet.
  [[nodiscard]] std::size_t left() const noexcept { return filled_ - at_; }

 private:
  void next();
  void unpack_piece(std::uint32_t stored, const Elements& elements);

  Source source_;
  std::string name_, advice_;
  memory::ScratchVector<std::byte> stored_, planes_, piece_;
  std::size_t filled_ = 0, at_ = 0;
  std::optional<Error> failed_;
};

}  // namespace gradwire::codec
