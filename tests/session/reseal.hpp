// Corrects the checksum of a saved state (docs/reference/state-format.md) after a test has changed bytes before it.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <string>

namespace gradwire::test {

inline void reseal(std::string& state) {
  const XXH64_hash_t hash = XXH3_64bits(state.data(), state.size() - sizeof(XXH64_hash_t));
  std::memcpy(state.data() + state.size() - sizeof hash, &hash, sizeof hash);
}

}  // namespace gradwire::test
