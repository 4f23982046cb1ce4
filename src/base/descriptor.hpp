// File descriptors that are closed at the end of a scope, and calls that read or write all bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace gradwire {

/// A descriptor that is closed at the end of a scope, or before.
class Descriptor {
 public:
  /// Takes the descriptor; a negative number is none.
  explicit Descriptor(int number) noexcept : number_(number) {}
  ~Descriptor() { static_cast<void>(close()); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }
  /// False where that fails; errno says why.
  [[nodiscard]] bool close() noexcept;

 private:
  int number_;
};

/// Whether all bytes were written; if not, errno says why.
[[nodiscard]] bool write_all(int descriptor, std::span<const std::byte> bytes) noexcept;
[[nodiscard]] inline bool write_all(int descriptor, std::string_view text) noexcept {
  return write_all(descriptor, std::as_bytes(std::span(text)));
}

/// Reads until `to` is full or the file ends, and returns the number of bytes; none: errno says why.
[[nodiscard]] std::optional<std::size_t> read_all(int descriptor, std::span<std::byte> to) noexcept;

}  // namespace gradwire
