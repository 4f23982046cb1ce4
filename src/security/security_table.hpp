// The interface between libgradwire_security.so, which contains cryptography, and its loader. It uses only types of C,
// since the two may have C++ runtimes of their own. The loader requires kSecurityVersion, which changes with any change
// here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::security {

inline constexpr std::uint32_t kSecurityVersion = 2;

/// One side of a TLS connection, in the library.
struct TlsChannel;

struct SecurityTable {
  std::uint32_t version = 0;  // kSecurityVersion
  /// The version of the library behind the functions, such as "OpenSSL 3.0.19 27 Jan 2026".
  const char* (*provider)() noexcept = nullptr;

  /// HKDF-SHA-256 (RFC 5869) of `key`, at most 8160 bytes long. Returns 0, or another number without memory.
  int (*hkdf)(const unsigned char* key, std::size_t key_bytes, const unsigned char* salt, std::size_t salt_bytes,
              const unsigned char* info, std::size_t info_bytes, unsigned char* out,
              std::size_t out_bytes) noexcept = nullptr;

  /// Encrypts `data` in place with a key of 32 bytes and a nonce of 12, and writes a tag of 16 bytes over it and
  /// `associated`. `cipher` is a value of Cipher. Returns 0, or another number where the cipher cannot be had.
  int (*seal)(int cipher, const unsigned char* key, const unsigned char* nonce, const unsigned char* associated,
              std::size_t associated_bytes, unsigned char* data, std::size_t bytes,
              unsigned char* tag) noexcept = nullptr;
  /// The reverse. Returns kWrongTag where key, nonce, tag or any byte is not the sealed one: `data` is undefined then.
  int (*open)(int cipher, const unsigned char* key, const unsigned char* nonce, const unsigned char* associated,
              std::size_t associated_bytes, unsigned char* data, std::size_t bytes,
              const unsigned char* tag) noexcept = nullptr;

  /// Whether the bytes are equal, in a time that depends on `bytes` alone.
  bool (*equal)(const void* one, const void* other, std::size_t bytes) noexcept = nullptr;

  /// One side of a TLS 1.3 connection over memory, by pre-shared key and ephemeral keys; null without memory. The
  /// connecting side names its key by `identity`; `psk` has 32 bytes.
  TlsChannel* (*tls_connect)(const unsigned char* psk, const unsigned char* identity,
                             std::size_t bytes) noexcept = nullptr;
  /// `find` writes the 32 bytes of the key of that identity, or returns false where it knows none.
  TlsChannel* (*tls_accept)(bool (*find)(void* owner, const unsigned char* identity, std::size_t bytes,
                                         unsigned char* psk) noexcept,
                            void* owner) noexcept = nullptr;
  void (*tls_free)(TlsChannel* channel) noexcept = nullptr;
  /// Takes over bytes that have come from the other side. Returns 0, or another number without memory.
  int (*tls_feed)(TlsChannel* channel, const unsigned char* data, std::size_t bytes) noexcept = nullptr;
  /// Writes bytes for the other side to `out`, and returns their number.
  std::size_t (*tls_take)(TlsChannel* channel, unsigned char* out, std::size_t bytes) noexcept = nullptr;
  /// Makes the handshake as far as it goes, and returns one of the states below.
  int (*tls_step)(TlsChannel* channel) noexcept = nullptr;
  /// Decrypts at most `bytes`, and returns their number; 0: nothing is there, or the state says why nothing comes.
  std::size_t (*tls_read)(TlsChannel* channel, unsigned char* out, std::size_t bytes) noexcept = nullptr;
  /// Encrypts all bytes once the channel is open. Returns 0, or another number: the state is failed then.
  int (*tls_write)(TlsChannel* channel, const unsigned char* data, std::size_t bytes) noexcept = nullptr;
  /// Whether another tls_read() may return something, or the state is closed or failed, without more bytes of the other
  /// side.
  bool (*tls_unread)(TlsChannel* channel) noexcept = nullptr;
  /// Why the channel has failed; valid until the next call for it.
  const char* (*tls_failure)(TlsChannel* channel) noexcept = nullptr;
};

/// States of a channel: it makes the handshake, is open, was closed by the other side, or has failed for good.
inline constexpr int kTlsHandshake = 0;
inline constexpr int kTlsOpen = 1;
inline constexpr int kTlsClosed = 2;
inline constexpr int kTlsFailed = 3;

inline constexpr int kWrongTag = 1;

}  // namespace gradwire::security

/// The only name that the library exports.
extern "C" const gradwire::security::SecurityTable* gradwire_security_functions();
