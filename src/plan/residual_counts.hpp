// Counts the residuals that the calls of a bucket keep on a rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "exchange/resolved_call.hpp"
#include "gradwire/dtype.hpp"
#include "plan/plan.hpp"

namespace gradwire::plan {

/// What residuals cover. Blocks are those of int8.
struct ResidualCount {
  std::uint64_t elements = 0;
  std::uint64_t blocks = 0;

  /// Returns 0 without a dtype.
  [[nodiscard]] std::uint64_t bytes(std::optional<ResidualDType> dtype) const;
  void raise_to(const ResidualCount& other) {
    elements = std::max(elements, other.elements);
    blocks = std::max(blocks, other.blocks);
  }
  ResidualCount& operator+=(const ResidualCount& other) {
    elements += other.elements;
    blocks += other.blocks;
    return *this;
  }
};

struct ResidualCounts {
  ResidualCount local;
  ResidualCount summed;
};

[[nodiscard]] ResidualCounts counts_of(const Bucket& bucket, const exchange::ResidualUse& use);
/// Returns the bytes that these residuals take of a file, where each array has whole pages; `memory` is what the place
/// keeps in memory.
[[nodiscard]] std::uint64_t room_of(const Bucket& bucket, const exchange::ResidualUse& use, ResidualDType dtype,
                                    std::uint64_t memory);

}  // namespace gradwire::plan
