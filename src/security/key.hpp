// A key of 32 bytes, in memory that core dumps leave out and that is wiped when the key goes.
#pragma once

#include <cstddef>
#include <span>

namespace gradwire::security {

inline constexpr std::size_t kKeyBytes = 32;

/// Keys lie in pages of their own, which are left out of core dumps where the kernel can do so, and stay with the
/// process. Any thread. A moved key has no bytes.
class Key {
 public:
  /// A key of zeros, to be filled in. Error(out_of_memory) where the system has no page.
  Key();
  /// A copy of these bytes, which the caller wipes. Error(internal) unless they are kKeyBytes.
  explicit Key(std::span<const std::byte> bytes);
  Key(Key&& other) noexcept;
  Key& operator=(Key&& other) noexcept;
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;
  ~Key();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {bytes_, bytes_ == nullptr ? 0 : kKeyBytes};
  }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {bytes_, bytes_ == nullptr ? 0 : kKeyBytes}; }

  /// Random bytes of the kernel. Error(internal) where it has none.
  [[nodiscard]] static Key random();

 private:
  std::byte* bytes_ = nullptr;
};

/// Overwrites the bytes, even where they are not read again.
void wipe(std::span<std::byte> bytes) noexcept;

/// Fills the bytes from the kernel's random numbers; a forked child gets others than its parent. Error(internal) where
/// the kernel has none.
void fill_random(std::span<std::byte> bytes);

/// Keeps the pages of all keys, of those that come, too, out of swap. Error(unsupported) that names the limit where the
/// system does not allow it.
void lock_keys();

}  // namespace gradwire::security
