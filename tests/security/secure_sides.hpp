// Two sides of TLS over memory, and what they say to each other.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "security/cryptography.hpp"
#include "security/key.hpp"
#include "security/secure_channel.hpp"

namespace gradwire::test {

using security::Cryptography;
using security::Key;
using security::SecureChannel;
using State = SecureChannel::State;
using Bytes = std::vector<std::byte>;

inline constexpr std::string_view kIdentity = "from 1 to 0";

inline std::span<const std::byte> octets_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline const Cryptography& cryptography() {
  static const Cryptography loaded = Cryptography::load();
  return loaded;
}

inline SecureChannel connecting(const Key& key, std::string_view identity = kIdentity) {
  return SecureChannel::connect(cryptography(), octets_of(identity), key);
}

// Accepts kIdentity with this key.
inline SecureChannel accepting(const Key& key) {
  Bytes bytes(key.bytes().begin(), key.bytes().end());
  return SecureChannel::accept(
      cryptography(), [bytes](std::span<const std::byte> identity, std::span<std::byte, security::kKeyBytes> out) {
        std::ranges::copy(bytes, out.begin());
        return std::ranges::equal(identity, octets_of(kIdentity));
      });
}

inline Bytes taken_from(SecureChannel& from) {
  Bytes all;
  std::array<std::byte, 5000> piece{};
  while (const std::size_t count = from.take(piece)) {
    all.insert(all.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return all;
}

inline Bytes read_from(SecureChannel& from) {
  Bytes all;
  std::array<std::byte, 5000> piece{};
  while (const std::size_t count = from.read(piece)) {
    all.insert(all.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return all;
}

inline std::string text_from(SecureChannel& from) {
  const Bytes all = read_from(from);
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

struct Sides {
  SecureChannel client;
  SecureChannel server;
  Bytes of_client = {};  // everything that it sent
  Bytes of_server = {};

  // Passes on what both send until they are silent.
  void pass() {
    for (;;) {
      client.step();
      const Bytes up = taken_from(client);
      server.feed(up);
      server.step();
      const Bytes down = taken_from(server);
      client.feed(down);
      of_client.insert(of_client.end(), up.begin(), up.end());
      of_server.insert(of_server.end(), down.begin(), down.end());
      if (up.empty() && down.empty()) {
        return;
      }
    }
  }
};

inline bool contains(const Bytes& all, std::span<const std::byte> part) {
  return std::ranges::search(all, part).begin() != all.end();
}

}  // namespace gradwire::test
