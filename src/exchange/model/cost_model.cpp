#include "exchange/model/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "exchange/window.hpp"

namespace gradwire::exchange {
namespace {

// Bytes of memory of the lanes that are always allowed.
constexpr double kLeastInFlight = kFramesInFlight * kLeastLanes * kDefaultChunkBytes;

struct Shares {
  double inter = 1;  // the share of a rank's bytes that leaves its node
  double intra = 0;
};

// The shares of a rank that sends evenly to all others.
Shares shares(const Cluster& cluster) {
  const double others = cluster.ranks - 1;
  const double local = std::min(cluster.ranks_per_node, cluster.ranks) - 1;
  return others > 0 ? Shares{(others - local) / others, local / others} : Shares{0, 0};
}

// Seconds of work of a rank that sends `bytes` and whose codecs take `codecs` seconds on a core of their own.
double work_seconds(const Cluster& cluster, double codecs, double bytes) {
  return (codecs + bytes * cluster.transport_seconds) * std::max(1.0, cluster.ranks_per_core);
}

// Seconds in which a rank sends `bytes` when memory limits the frames that are under way.
double window_seconds(const Cluster& cluster, double bytes, double latency) {
  return bytes * latency * kFramesInFlight / std::max(cluster.in_flight_bytes, kLeastInFlight);
}

double slowest_latency(const Cluster& cluster) {
  const Shares share = shares(cluster);
  return std::max(share.inter > 0 ? cluster.inter.latency_seconds : 0,
                  share.intra > 0 ? cluster.intra.latency_seconds : 0);
}

// Seconds in which every rank sends `bytes` evenly to all others.
double spread_seconds(const Cluster& cluster, double bytes) {
  const Shares share = shares(cluster);
  return std::max({bytes * share.inter * cluster.ranks_per_node / cluster.inter.bytes_per_second,
                   bytes * share.intra / cluster.intra.bytes_per_second,
                   window_seconds(cluster, bytes, slowest_latency(cluster))});
}

// Seconds of parts that overlap, except for the first chunk, which passes through all of them.
double pipelined(std::initializer_list<double> parts, double chunks) {
  double sum = 0;
  for (const double part : parts) {
    sum += part;
  }
  const double most = std::max(parts);
  return most + (sum - most) / std::max(1.0, chunks);
}

}  // namespace

double link_rate(double bytes, double half_seconds, double seconds) {
  const double all = bytes / seconds;
  const double added = seconds - half_seconds;
  return added > seconds / 2 ? std::min(all, bytes / 2 / added) : all;
}

Cost dense_cost(const Cluster& cluster, double elements, double element_bytes) {
  const double ranks = cluster.ranks;
  if (cluster.ranks <= 1) {
    return {};
  }
  // A ring crosses each node's link once in each direction, whatever the number of ranks in the node.
  const bool crosses = cluster.ranks > cluster.ranks_per_node;
  const double bytes = 2 * (ranks - 1) / ranks * elements * element_bytes;
  const bool inside = cluster.ranks_per_node > 1;
  Cost cost;
  cost.wire = std::max(crosses ? bytes / cluster.inter.bytes_per_second : 0,
                       inside ? bytes / cluster.intra.bytes_per_second : 0);
  cost.latency = 2 * (ranks - 1) * slowest_latency(cluster);
  cost.total = cost.wire + cost.latency;
  return cost;
}

Cost two_shot_cost(const Cluster& cluster, double elements, const CodecCost& first, const CodecCost& second,
                   double chunk_bytes) {
  const double ranks = cluster.ranks;
  if (cluster.ranks <= 1) {
    return {};
  }
  const double others = (ranks - 1) / ranks;
  const double bytes = others * elements * (first.bytes + second.bytes);
  Cost cost;
  cost.wire = spread_seconds(cluster, bytes);
  const double codecs = elements * (others * (first.encode_seconds + first.decode_seconds) +
                                    second.encode_seconds / ranks + second.decode_seconds);
  cost.codec = work_seconds(cluster, codecs, bytes);
  cost.latency = 2 * (ranks - 1) * slowest_latency(cluster);
  cost.total = cost.latency + pipelined({cost.wire, cost.codec}, bytes / 2 / (ranks - 1) / chunk_bytes);
  return cost;
}

Cost one_shot_cost(const Cluster& cluster, double elements, const CodecCost& codec, double chunk_bytes) {
  const double ranks = cluster.ranks;
  if (cluster.ranks <= 1) {
    return {};
  }
  Cost cost;
  const double bytes = (ranks - 1) * elements * codec.bytes;
  cost.wire = spread_seconds(cluster, bytes);
  cost.codec = work_seconds(cluster, elements * (codec.encode_seconds + ranks * codec.decode_seconds), bytes);
  cost.latency = (ranks - 1) * slowest_latency(cluster);
  cost.total = cost.latency + pipelined({cost.wire, cost.codec}, elements * codec.bytes / chunk_bytes);
  return cost;
}

Cost hierarchical_cost(const Cluster& cluster, double elements, const CodecCost& intra, const CodecCost& inter,
                       double chunk_bytes) {
  const double local = std::min(cluster.ranks_per_node, cluster.ranks);
  const double nodes = std::ceil(cluster.ranks / local);
  const double other_local = (local - 1) / local;
  const double other_nodes = (nodes - 1) / nodes;
  const double part = elements / local;  // elements that one rank carries between nodes
  Cost cost;
  const double inside = other_local * elements * (intra.bytes + inter.bytes) / cluster.intra.bytes_per_second;
  const double between = 2 * other_nodes * part * inter.bytes * local / cluster.inter.bytes_per_second;
  const double window = window_seconds(cluster, 2 * other_nodes * part * inter.bytes, cluster.inter.latency_seconds);
  const double codecs =
      other_local * elements * (intra.encode_seconds + intra.decode_seconds) +
      part * (other_nodes * (inter.encode_seconds + inter.decode_seconds) + inter.encode_seconds / nodes) +
      elements * inter.decode_seconds;
  const double sent = other_local * elements * (intra.bytes + inter.bytes) + 2 * other_nodes * part * inter.bytes;
  cost.codec = work_seconds(cluster, codecs, sent);
  cost.wire = std::max({inside, between, window});
  cost.latency = 2 * (local - 1) * cluster.intra.latency_seconds + 2 * (nodes - 1) * cluster.inter.latency_seconds;
  const double chunks = part * inter.bytes / nodes / chunk_bytes;
  cost.total = cost.latency + pipelined({inside, std::max(between, window), cost.codec}, chunks);
  return cost;
}

StepCost step_cost(double compute_seconds, std::span<const BucketCost> buckets) {
  double end = 0;
  for (const BucketCost& bucket : buckets) {
    end = std::max(end, bucket.ready_seconds) + bucket.seconds;
  }
  const double seconds = std::max(compute_seconds, end);
  return {seconds, seconds - compute_seconds};
}

}  // namespace gradwire::exchange
