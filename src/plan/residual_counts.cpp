#include "plan/residual_counts.hpp"

#include "exchange/residuals/residual_values.hpp"
#include "memory/spill_cache.hpp"

namespace gradwire::plan {
namespace {

// Calls body(position in the bucket, count) for each tensor of which a range holds elements: it has arrays of its own.
template <class Body>
void for_each_array(const Bucket& bucket, const exchange::ResidualUse::Range& range, Body body) {
  for (const Bucket::Part& part : bucket.parts) {
    const std::uint64_t first = std::max(range.first, part.offset);
    const std::uint64_t past = std::min(range.first + range.count, part.offset + part.count);
    if (first < past) {
      body(first, past - first);
    }
  }
}

}  // namespace

std::uint64_t ResidualCount::bytes(std::optional<ResidualDType> dtype) const {
  return !dtype                          ? 0
         : *dtype == ResidualDType::int8 ? exchange::residual_bytes_of(*dtype, blocks * exchange::kResidualBlock, 0)
                                         : exchange::residual_bytes_of(*dtype, elements, 0);
}

ResidualCounts counts_of(const Bucket& bucket, const exchange::ResidualUse& use) {
  ResidualCounts counts;
  const auto add = [&](ResidualCount& count, const exchange::ResidualUse::Range& range) {
    for_each_array(bucket, range, [&](std::uint64_t first, std::uint64_t elements) {
      const auto lead = static_cast<std::uint32_t>(first % exchange::kResidualBlock);
      count += {elements, (lead + elements + exchange::kResidualBlock - 1) / exchange::kResidualBlock};
    });
  };
  add(counts.local, use.local);
  add(counts.summed, use.owned);
  for (const exchange::ResidualUse::Range& range : use.summed) {
    add(counts.summed, range);
  }
  for (const exchange::ResidualUse::Part& part : use.parts) {
    add(counts.summed, part.summed);
    add(counts.summed, part.owned);
  }
  return counts;
}

std::uint64_t room_of(const Bucket& bucket, const exchange::ResidualUse& use, ResidualDType dtype,
                      std::uint64_t memory) {
  std::uint64_t room = 0;
  const auto add = [&](const exchange::ResidualUse::Range& range) {
    for_each_array(bucket, range, [&](std::uint64_t first, std::uint64_t count) {
      const auto lead = static_cast<std::uint32_t>(first % exchange::kResidualBlock);
      const std::uint64_t bytes = exchange::residual_bytes_of(dtype, count, lead);
      room += bytes < memory::kFileUnit ? 0 : memory::SpillCache::room_of(bytes, memory);  // small ones stay in memory
    });
  };
  add(use.local);
  add(use.owned);
  std::for_each(use.summed.begin(), use.summed.end(), add);
  return room;
}

}  // namespace gradwire::plan
