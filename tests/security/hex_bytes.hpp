// Bytes of tests as hexadecimal digits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "security/key.hpp"
#include "tests/support/hex.hpp"

namespace gradwire::test {

inline std::vector<std::byte> from_hex(const std::string& hex) {
  const std::string text = bytes_of(hex);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::string to_hex(std::span<const std::byte> bytes) {
  return hex_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// The key that documents and golden frames use: the bytes 0, 1, ..., 31.
inline security::Key published_key() {
  security::Key key;
  for (std::size_t i = 0; i < security::kKeyBytes; ++i) {
    key.bytes()[i] = static_cast<std::byte>(i);
  }
  return key;
}

}  // namespace gradwire::test
