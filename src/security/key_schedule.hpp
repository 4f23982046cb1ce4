// The key schedule derives keys from the key of a job and from the secret of a world. Each derivation is HKDF-SHA-256
// without a salt, of a secret and a text that names the purpose. docs/reference/sealed-frames.md has it byte
// by byte.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "security/cipher.hpp"
#include "security/cryptography.hpp"
#include "security/key.hpp"

namespace gradwire::security {

/// What a derived key of the job lets its holder do. Neither gives the job's key, nor the other.
enum class Right : std::uint8_t {
  join,     // knock at a running job
  observe,  // read its metrics and pages
};
[[nodiscard]] std::string_view to_string(Right right) noexcept;

[[nodiscard]] Key derive_right(const Cryptography& cryptography, const Key& job, Right right);

/// Returns 32 hex digits that differ for different keys and tell nothing else of the key, so that people can compare
/// the files of two hosts.
[[nodiscard]] std::string check_value(const Cryptography& cryptography, const Key& key);

/// The random bytes that every process draws at its start and tells the others, so that no two starts have equal keys.
using Salt = std::array<std::byte, 32>;
[[nodiscard]] Salt draw_salt();

/// The secret of a job's first world; `salts` are those of all its ranks, in their order. Error(internal) without any.
[[nodiscard]] Key first_world_secret(const Cryptography& cryptography, const Key& job, std::span<const Salt> salts);
/// The secret of a later world, which the rank that leads the change draws and sends to the others.
[[nodiscard]] Key draw_world_secret();

/// A rank sends this to the others of its first world beside its random bytes. It shows that these come from a process
/// with the job's key, so a rank with another key is named before any data moves.
using Proof = std::array<std::byte, 32>;
[[nodiscard]] Proof prove_greeting(const Cryptography& cryptography, const Key& job, const Salt& salt,
                                   bool rank_has_aes, std::uint32_t rank, std::uint32_t world_size);

/// The pre-shared key of one TLS connection. `context` says between which processes it is and what for.
[[nodiscard]] Key connection_key(const Cryptography& cryptography, const Key& job, std::span<const std::byte> context);

/// The kind of a sender's messages; each purpose has a key and counters of its own.
enum class Purpose : std::uint8_t { frames, control, tables, residual_copies };
[[nodiscard]] std::string_view to_string(Purpose purpose) noexcept;

/// The key by which rank `sender` of a world seals its messages of one purpose.
[[nodiscard]] Key sender_key(const Cryptography& cryptography, const Key& world_secret, Purpose purpose, Cipher cipher,
                             std::uint32_t sender);

}  // namespace gradwire::security
