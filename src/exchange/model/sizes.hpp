// The best sizes of chunks and buckets by the cost model. The functions are pure.
#pragma once

#include <cstdint>

#include "exchange/model/cost_model.hpp"
#include "exchange/model/level_forecast.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/link.hpp"

namespace gradwire::exchange {

/// The cluster for a given `link` between nodes; links inside nodes are not known.
[[nodiscard]] Cluster given_cluster(const Link& link, const Tiers& tiers);

/// Bytes that a rank keeps on its part of the link between nodes to fill it; 0 where the link's latency is small.
[[nodiscard]] std::uint64_t window_of(const Cluster& cluster);
/// Memory of the frames that this window needs.
[[nodiscard]] std::uint64_t window_memory(const Cluster& cluster);
/// Least bytes of a chunk on the wire, so that a window within its memory does not have too many chunks: the default,
/// or a power of two up to 1 MiB.
[[nodiscard]] std::uint64_t least_chunk_bytes(const Cluster& cluster);

/// Best bytes of a chunk on the wire for a reduction of `elements`: the default, unless a power of two from 32 KiB to 1
/// MiB makes the reduction more than 1% shorter. Small chunks overlap more, but each costs a message.
[[nodiscard]] std::uint64_t best_chunk_bytes(const Cluster& cluster, const Way& way, double elements);

/// Best uncompressed bytes of a bucket, a power of two from 1 to 64 MiB: the size with the least time after the
/// backward pass, if that pass makes `elements` in all ready one after the other and the link keeps up. The last bucket
/// travels after the pass, and each bucket costs its latency.
[[nodiscard]] std::uint64_t best_bucket_bytes(const Cluster& cluster, const Way& way, double elements);

}  // namespace gradwire::exchange
