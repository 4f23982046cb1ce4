// How large chunks and buckets should be, by the cost model. Pure functions: same numbers in, same sizes out.
#pragma once

#include <cstdint>

#include "exchange/model/cost_model.hpp"
#include "exchange/model/level_forecast.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/link.hpp"

namespace gradwire::exchange {

/// Of a link that is given: `link` between nodes; nothing is known of what is inside them.
[[nodiscard]] Cluster given_cluster(const Link& link, const Tiers& tiers);

/// Bytes that a rank keeps on its part of the link between nodes, so that it stays full; 0 where it is not far.
[[nodiscard]] std::uint64_t window_of(const Cluster& cluster);
/// Memory of the frames that takes.
[[nodiscard]] std::uint64_t window_memory(const Cluster& cluster);
/// Bytes of a chunk on the wire, so large that a window within its memory is not too many of them: the default, or a
/// power of two up to 1 MiB.
[[nodiscard]] std::uint64_t least_chunk_bytes(const Cluster& cluster);

/// Bytes of a chunk on the wire, for a reduction of `elements`: the default, unless a power of two from 32 KiB to 1 MiB
/// makes it more than 1% shorter. Small chunks overlap more, but each pays for a message.
[[nodiscard]] std::uint64_t best_chunk_bytes(const Cluster& cluster, const Way& way, double elements);

/// Uncompressed bytes of a bucket, a power of two from 1 to 64 MiB: with the shortest tail, where a backward pass makes
/// `elements` in all ready one after the other and the link keeps up. The last bucket travels after that pass; the
/// latency of all is paid.
[[nodiscard]] std::uint64_t best_bucket_bytes(const Cluster& cluster, const Way& way, double elements);

}  // namespace gradwire::exchange
