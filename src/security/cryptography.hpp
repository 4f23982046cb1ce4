// The functions of libgradwire_security.so, which is loaded where a key is used for the first time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "security/cipher.hpp"
#include "security/key.hpp"
#include "security/security_table.hpp"

namespace gradwire::security {

inline constexpr std::size_t kNonceBytes = 12;
inline constexpr std::size_t kTagBytes = 16;
using Nonce = std::array<std::byte, kNonceBytes>;
using Tag = std::array<std::byte, kTagBytes>;

/// A view of the loaded library; copies are cheap. Any thread.
class Cryptography {
 public:
  /// Loads the library, for ever, from `file`, or as load_companion() finds it. Error(unsupported) says why it cannot
  /// be used, and what to install.
  [[nodiscard]] static Cryptography load(const std::string& file = {});

  /// "OpenSSL 3.0.19 27 Jan 2026".
  [[nodiscard]] std::string provider() const { return table_->provider(); }

  /// Fills `out` with HKDF-SHA-256 (RFC 5869). Error(internal) where the library fails.
  void hkdf(std::span<const std::byte> key, std::span<const std::byte> salt, std::span<const std::byte> info,
            std::span<std::byte> out) const;

  /// Encrypts `data` in place and returns the tag over it and `associated`. A nonce must never come twice with one key.
  /// Error(internal) where the library fails; `data` is undefined then.
  [[nodiscard]] Tag seal(Cipher cipher, const Key& key, const Nonce& nonce, std::span<const std::byte> associated,
                         std::span<std::byte> data) const;
  /// Decrypts in place. False, and `data` is zeros, where anything is not what was sealed.
  [[nodiscard]] bool open(Cipher cipher, const Key& key, const Nonce& nonce, std::span<const std::byte> associated,
                          std::span<std::byte> data, std::span<const std::byte, kTagBytes> tag) const;

  /// Whether the bytes are equal, in a time that depends on their number alone.
  [[nodiscard]] bool equal(std::span<const std::byte> one, std::span<const std::byte> other) const noexcept {
    return one.size() == other.size() && table_->equal(one.data(), other.data(), one.size());
  }

  /// The functions themselves, for SecureChannel.
  [[nodiscard]] const SecurityTable& table() const noexcept { return *table_; }

 private:
  explicit Cryptography(const SecurityTable& table) : table_(&table) {}

  const SecurityTable* table_;
};

}  // namespace gradwire::security
