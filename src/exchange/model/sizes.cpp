#include "exchange/model/sizes.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "exchange/window.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::uint64_t kLeastChunk = 32ULL << 10;
constexpr std::uint64_t kMostChunk = 1ULL << 20;
constexpr double kMostInFlight = 512;  // most chunks in flight, since all are polled whenever one moves
constexpr double kWorthwhile = 1.01;   // least gain over the default chunk, whose frames stay in a core's cache
constexpr std::uint64_t kLeastBucket = 1ULL << 20;
constexpr std::uint64_t kMostBucket = 64ULL << 20;
constexpr double kMessageSeconds = 10e-6;  // time for which a message keeps a rank busy, however long it travels
constexpr double kElementBytes = 4;        // uncompressed, as buckets are counted

double seconds_in_chunks(const Cluster& cluster, const Way& way, double elements, std::uint64_t chunk_bytes) {
  const auto chunk = static_cast<double>(chunk_bytes);
  const double sent = 2.0 * (cluster.ranks - 1) / cluster.ranks * elements * way.first.bytes;
  return way_cost(cluster, way, elements, chunk).total +
         sent / chunk * std::min(cluster.inter.latency_seconds, kMessageSeconds);
}

}  // namespace

Cluster given_cluster(const Link& link, const Tiers& tiers) {
  Cluster cluster{.ranks = tiers.world_size(), .ranks_per_node = 1};
  cluster.inter = {std::chrono::duration<double>(link.latency).count(), link.bytes_per_second};
  if (tiers.why_not_hierarchical().empty()) {
    cluster.ranks_per_node = static_cast<int>(tiers.members(0).size());
  }
  return cluster;
}

std::uint64_t window_of(const Cluster& cluster) {
  const double rate = cluster.inter.bytes_per_second / std::max(1, cluster.ranks_per_node);
  return std::isfinite(rate) ? window_bytes(rate, cluster.inter.latency_seconds) : 0;
}

std::uint64_t window_memory(const Cluster& cluster) {
  return static_cast<std::uint64_t>(kFramesInFlight * static_cast<double>(window_of(cluster)));
}

std::uint64_t least_chunk_bytes(const Cluster& cluster) {
  const double in_flight = std::min(static_cast<double>(window_of(cluster)), cluster.in_flight_bytes / kFramesInFlight);
  std::uint64_t chunk = kDefaultChunkBytes;
  for (std::uint64_t larger = kLeastChunk;
       larger <= kMostChunk && in_flight > kMostInFlight * static_cast<double>(chunk); larger *= 2) {
    chunk = std::max(chunk, larger);
  }
  return chunk;
}

std::uint64_t best_chunk_bytes(const Cluster& cluster, const Way& way, double elements) {
  std::uint64_t best = least_chunk_bytes(cluster);
  double shortest = seconds_in_chunks(cluster, way, elements, best) / kWorthwhile;
  for (std::uint64_t chunk = std::max(kLeastChunk, best > kDefaultChunkBytes ? best : 0); chunk <= kMostChunk;
       chunk *= 2) {
    const double seconds = seconds_in_chunks(cluster, way, elements, chunk);
    if (seconds < shortest) {
      shortest = seconds;
      best = chunk;
    }
  }
  return best;
}

std::uint64_t best_bucket_bytes(const Cluster& cluster, const Way& way, double elements) {
  std::uint64_t best = kLeastBucket;
  double shortest = std::numeric_limits<double>::infinity();
  for (std::uint64_t bytes = kLeastBucket; bytes <= kMostBucket; bytes *= 2) {
    const double count = std::min(static_cast<double>(bytes) / kElementBytes, elements);
    const Cost one = way_cost(cluster, way, count);
    const double tail = one.total - one.latency + elements / std::max(count, 1.0) * one.latency;
    if (tail < shortest) {
      shortest = tail;
      best = bytes;
    }
  }
  return best;
}

}  // namespace gradwire::exchange
