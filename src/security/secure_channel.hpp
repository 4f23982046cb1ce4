// TLS over memory: one side of a connection that takes and gives bytes, and leaves the socket to its caller.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "security/cryptography.hpp"
#include "security/key.hpp"

namespace gradwire::security {

/// One side of a TLS 1.3 connection by pre-shared and ephemeral keys, without certificates and tickets. Neither side
/// can write before the other has proven that it has the key. One thread at a time.
class SecureChannel {
 public:
  enum class State : std::uint8_t {
    handshake,  // nothing can be read or written yet
    open,
    closed,  // the other side has closed the connection
    failed,  // for good: failure() says why
  };
  /// Fills in the key of an identity, which anybody may have made up, and returns true; false: it is not known.
  using Find = std::function<bool(std::span<const std::byte> identity, std::span<std::byte, kKeyBytes> key)>;

  /// The side that speaks first. The identity, at most 256 bytes, is sent in clear text. Error(internal) without
  /// memory.
  [[nodiscard]] static SecureChannel connect(const Cryptography& cryptography, std::span<const std::byte> identity,
                                             const Key& key);
  [[nodiscard]] static SecureChannel accept(const Cryptography& cryptography, Find find);

  /// Takes over bytes that have come from the other side. Error(internal) without memory.
  void feed(std::span<const std::byte> bytes);
  /// Writes bytes for the other side to `out`, and returns their number; 0: there are none.
  [[nodiscard]] std::size_t take(std::span<std::byte> out) noexcept;
  /// Makes the handshake as far as the bytes of the other side allow. After `failed` the last bytes of take() say so to
  /// the other side.
  State step() noexcept;
  [[nodiscard]] State state() const noexcept { return state_; }

  /// Decrypts what has come, at most as many bytes as `out` has, and returns their number.
  [[nodiscard]] std::size_t read(std::span<std::byte> out) noexcept;
  /// Whether another read() may return something though no more bytes are fed meanwhile, or the state says why not.
  [[nodiscard]] bool unread() const noexcept;
  /// Encrypts all bytes for take(). False: the state is not `open`, or is `failed` from here on.
  [[nodiscard]] bool write(std::span<const std::byte> bytes) noexcept;
  /// OpenSSL's words for what failed.
  [[nodiscard]] std::string failure() const;

 private:
  struct Frees {
    void operator()(TlsChannel* channel) const noexcept { table->tls_free(channel); }
    const SecurityTable* table;
  };

  SecureChannel(const SecurityTable& table, TlsChannel* channel, std::unique_ptr<Find> find);

  const SecurityTable* table_;
  std::unique_ptr<Find> find_;  // the library has its address
  std::unique_ptr<TlsChannel, Frees> channel_;
  State state_ = State::handshake;
};

}  // namespace gradwire::security
