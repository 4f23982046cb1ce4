// How a bucket whose codec is chosen at run time travels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/reduction.hpp"

namespace gradwire::choice {

struct BucketChoice {
  std::size_t level = 0;  // of Bucket::levels
  bool native = false;    // at level 0 by the transport's own all-reduce
  std::uint64_t chunk_bytes = kDefaultChunkBytes;
};

}  // namespace gradwire::choice
