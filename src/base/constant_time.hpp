// Compares secrets in a time that says nothing about them.
#pragma once

#include <cstddef>
#include <string_view>

namespace gradwire {

/// Whether the texts are equal, in a time that depends on the length of `given` alone. An empty secret equals nothing.
[[nodiscard]] inline bool equals_secret(std::string_view given, std::string_view secret) noexcept {
  if (secret.empty()) {
    return false;
  }
  volatile unsigned different = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0, j = 0; i < given.size(); ++i) {
    different = different | static_cast<unsigned>(given[i] ^ secret[j]);
    j = j + 1 == secret.size() ? 0 : j + 1;
  }
  return different == 0;
}

}  // namespace gradwire
