#include "plan/hash.hpp"

#define XXH_INLINE_ALL  // no need of libxxhash in programs that link gradwire
#include <xxhash.h>

namespace gradwire::plan {

std::uint64_t hash_of(const void* data, std::size_t bytes, std::uint64_t before) {
  return XXH3_64bits_withSeed(data, bytes, before);
}

}  // namespace gradwire::plan
