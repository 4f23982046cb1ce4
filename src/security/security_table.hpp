// The interface between libgradwire_security.so, which contains cryptography, and its loader. It uses only types of C,
// since the two may have C++ runtimes of their own. The loader requires kSecurityVersion, which changes with any change
// here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::security {

inline constexpr std::uint32_t kSecurityVersion = 1;

struct SecurityTable {
  std::uint32_t version;  // kSecurityVersion
  /// The version of the library behind the functions, such as "OpenSSL 3.0.19 27 Jan 2026".
  const char* (*provider)() noexcept;

  /// HKDF-SHA-256 (RFC 5869) of `key`, at most 8160 bytes long. Returns 0, or another number without memory.
  int (*hkdf)(const unsigned char* key, std::size_t key_bytes, const unsigned char* salt, std::size_t salt_bytes,
              const unsigned char* info, std::size_t info_bytes, unsigned char* out, std::size_t out_bytes) noexcept;

  /// Encrypts `data` in place with a key of 32 bytes and a nonce of 12, and writes a tag of 16 bytes over it and
  /// `associated`. `cipher` is a value of Cipher. Returns 0, or another number where the cipher cannot be had.
  int (*seal)(int cipher, const unsigned char* key, const unsigned char* nonce, const unsigned char* associated,
              std::size_t associated_bytes, unsigned char* data, std::size_t bytes, unsigned char* tag) noexcept;
  /// The reverse. Returns kWrongTag where key, nonce, tag or any byte is not the sealed one: `data` is undefined then.
  int (*open)(int cipher, const unsigned char* key, const unsigned char* nonce, const unsigned char* associated,
              std::size_t associated_bytes, unsigned char* data, std::size_t bytes, const unsigned char* tag) noexcept;

  /// Whether the bytes are equal, in a time that depends on `bytes` alone.
  bool (*equal)(const void* one, const void* other, std::size_t bytes) noexcept;
};

inline constexpr int kWrongTag = 1;

}  // namespace gradwire::security

/// The only name that the library exports.
extern "C" const gradwire::security::SecurityTable* gradwire_security_functions();
