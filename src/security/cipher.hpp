// The ciphers of sealed messages: authenticated encryption with associated data, keys of 32 bytes, nonces of 12 and
// tags of 16.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradwire::security {

/// The values are part of the key schedule (docs/reference/sealed-frames.md).
enum class Cipher : std::uint8_t { aes_256_gcm = 1, chacha20_poly1305 = 2 };

[[nodiscard]] constexpr std::string_view to_string(Cipher cipher) noexcept {
  return cipher == Cipher::aes_256_gcm ? "AES-256-GCM" : "ChaCha20-Poly1305";
}

/// Whether this CPU has instructions for AES and for the multiplication of GCM.
[[nodiscard]] bool has_aes() noexcept;

/// The cipher of a world: AES where every rank has_aes(), since it is quicker there, and elsewhere the one that is
/// quick without such instructions, and takes the same time for every key.
[[nodiscard]] constexpr Cipher choose_cipher(bool all_have_aes) noexcept {
  return all_have_aes ? Cipher::aes_256_gcm : Cipher::chacha20_poly1305;
}

}  // namespace gradwire::security
