// StateWriter and StateReader move a state to and from a stream piece by piece. Numbers have the same bytes as in
// memory, and both compute the XXH3-64 of all bytes so far. docs/reference/state-format.md describes the format.
#pragma once

#define XXH_INLINE_ALL  // programs that link gradwire then need no libxxhash
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/packed_pieces.hpp"
#include "gradwire/error.hpp"

namespace gradwire::session {

inline constexpr std::string_view kStateMagic = "gradwire";
inline constexpr std::uint32_t kStateVersion = 5;  // its residuals have dtypes
inline constexpr std::uint32_t kStateWithTables = 4;
inline constexpr std::uint32_t kStateWithoutTables = 3;
inline constexpr std::uint32_t kPackedFlag = 1U << 16;  // added to the version of a file whose body is packed pieces
inline constexpr std::size_t kStateHeadBytes = 24;      // magic, version, zero, bytes of the body

/// XXH3-64 of bytes that come in pieces.
class StateHash {
 public:
  StateHash() noexcept { XXH3_64bits_reset(&state_); }
  void update(const void* data, std::size_t bytes) noexcept { XXH3_64bits_update(&state_, data, bytes); }
  [[nodiscard]] std::uint64_t value() const noexcept { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

class StateWriter {
 public:
  /// If `stream` is null, the writer only counts bytes.
  explicit StateWriter(std::ostream* stream) noexcept : stream_(stream) {}
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;
  ~StateWriter() = default;

  /// Values that are put from here to end_pieces() are written as packed pieces; needs codec::require_packing().
  void begin_pieces() {
    pieces_.emplace([this](std::span<const std::byte> piece) { write(piece); });
  }
  void end_pieces() {
    pieces_->flush();
    pieces_.reset();
  }
  /// Packed pieces need to know the size of each value.
  void put(const void* data, std::size_t bytes, std::size_t bytes_each = 1) {
    bytes_ += bytes;
    const std::span<const std::byte> values(static_cast<const std::byte*>(data), bytes);
    if (stream_ == nullptr || bytes == 0) {
      return;
    }
    if (pieces_) {
      pieces_->put(values, bytes_each);
    } else {
      write(values);
    }
  }
  template <class T>
  void number(T value) {
    put(&value, sizeof value);
  }
  template <class T>
  void numbers(std::span<const T> values) {
    put(values.data(), values.size_bytes(), sizeof(T));
  }
  /// Counts bytes of values that need not be read for it.
  void count(std::uint64_t bytes) noexcept { bytes_ += bytes; }
  void text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    put(text.data(), text.size());
  }
  /// Returns the bytes that were put, before packing.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Returns the hash of all bytes that were written.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_.value(); }
  /// Whether there is no stream, so that put() does not look at the data.
  [[nodiscard]] bool only_counts() const noexcept { return stream_ == nullptr; }

 private:
  void write(std::span<const std::byte> bytes) {
    hash_.update(bytes.data(), bytes.size());
    stream_->write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  std::ostream* stream_;
  std::uint64_t bytes_ = 0;
  std::optional<codec::PieceWriter> pieces_;
  StateHash hash_;
};

/// Trusts no bytes, just as wire::ByteReader: it throws Error(corrupt) if something is missing or wrong.
class StateReader {
 public:
  /// Reads the head. This and all functions that read throw Error(invalid_argument) if the stream fails; a stream that
  /// only ends too early is corrupt.
  StateReader(std::istream& stream, std::string source);
  StateReader(const StateReader&) = delete;
  StateReader& operator=(const StateReader&) = delete;
  ~StateReader() = default;
  /// Throws Error(unsupported) for a version that this build does not know.
  void require_version() const;

  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  [[noreturn]] void fail(const std::string& what) const;

  void read(void* to, std::uint64_t bytes);
  void skip(std::uint64_t bytes);
  template <class T>
  T number() {
    T value{};
    read(&value, sizeof value);
    return value;
  }
  /// Allocates memory only as bytes arrive, so that a damaged count does not become a large allocation.
  template <class T>
  std::vector<T> numbers(std::uint64_t count) {
    require(count, sizeof(T));
    std::vector<T> values;
    while (values.size() < count) {
      const std::size_t before = values.size();
      values.resize(before + std::min<std::uint64_t>(count - before, kPieceBytes / sizeof(T)));
      read(values.data() + before, (values.size() - before) * sizeof(T));
    }
    return values;
  }
  std::string text() {
    const auto letters = numbers<char>(number<std::uint32_t>());
    return {letters.begin(), letters.end()};
  }
  /// Fails if fewer than `count` times `bytes_each` bytes of the body are left.
  void require(std::uint64_t count, std::uint64_t bytes_each) const {
    if (count > left_ / bytes_each) {
      fail("it ends too early");
    }
  }
  void expect_end() const;
  /// Skips the rest of the body, and fails if the hash after it is not the hash of all bytes before.
  void check_hash();

 private:
  static constexpr std::size_t kPieceBytes = 1 << 20;
  std::uint64_t take(void* to, std::uint64_t bytes);
  std::uint64_t take_stored(void* to, std::uint64_t bytes);
  [[noreturn]] void cut(std::uint64_t beyond = 0) const;
  void require_stream() const;

  std::istream& stream_;
  std::string source_;
  std::uint32_t version_ = 0;
  std::uint64_t body_ = 0;
  std::uint64_t left_ = kStateHeadBytes;  // bytes left of the head, and later of the body, before packing
  std::optional<codec::PieceReader> pieces_;
  StateHash hash_;
};

}  // namespace gradwire::session
