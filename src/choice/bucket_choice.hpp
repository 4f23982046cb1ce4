// How a bucket is reduced if its codec is chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/reduction.hpp"

namespace gradwire::choice {

struct BucketChoice {
  std::size_t level = 0;  // index into Bucket::levels
  bool native = false;    // level 0 uses the transport's own all-reduce
  std::uint64_t chunk_bytes = kDefaultChunkBytes;
};

}  // namespace gradwire::choice
