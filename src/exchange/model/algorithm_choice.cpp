#include "exchange/model/algorithm_choice.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/units.hpp"
#include "codec/codec.hpp"
#include "exchange/default_codecs.hpp"
#include "exchange/model/cost_model.hpp"
#include "exchange/model/sizes.hpp"
#include "exchange/resolved_call.hpp"

namespace gradwire::exchange {
namespace {

// Costs of a link that is not given: Ethernet of 1 Gbit/s.
constexpr LinkCost kAssumedBetween{.latency_seconds = 50e-6, .bytes_per_second = 125e6};
constexpr LinkCost kAssumedInside{.latency_seconds = 5e-6, .bytes_per_second = 2e9};
constexpr double kMemoryRate = 4e9;            // bytes/s of a rank to its node while it also sends to others
constexpr double kTurnSeconds = 50e-6;         // wait for another rank of the node, which may share this one's core
constexpr double kBusySeconds = 10e-6;         // time for which a message keeps a rank busy
constexpr double kTransportSeconds = 2.5e-10;  // core time for a byte
constexpr double kEncodeSeconds = 3e-10;       // for an element; a constant, so that all ranks compute the same
constexpr double kDecodeSeconds = 2e-10;
constexpr double kPackSeconds = 1.1e-9;  // for a byte
constexpr double kUnpackSeconds = 4.5e-10;
constexpr int kMostAtOnce = 4;  // most ranks for one_shot: with eight it took longer than two_shot
constexpr double kOfTwoRanks = 16;
constexpr double kLeastGain = 1.05;   // for one_shot: the model is not exact
constexpr double kTieredGain = 1.25;  // for hierarchical, whose four hops the model predicts worst

CodecCost cost_of(const CodecSpec& codec, DType dtype) {
  const codec::Codec coded(codec, dtype);
  const double bytes = coded.lossy() ? bits_per_element(codec) / 8 : static_cast<double>(element_bytes(dtype));
  return {.bytes = bytes,
          .encode_seconds = kEncodeSeconds + (coded.packed() ? kPackSeconds * bytes : 0),
          .decode_seconds = kDecodeSeconds + (coded.packed() ? kUnpackSeconds * bytes : 0)};
}

Cluster cluster_of(const Tiers& tiers, const std::optional<Link>& link) {
  Cluster cluster = given_cluster(link.value_or(Link{}), tiers);
  cluster.transport_seconds = kTransportSeconds;
  cluster.intra = {.bytes_per_second = kMemoryRate};
  if (!link) {
    cluster.inter = tiers.nodes() == 1 ? kAssumedInside : kAssumedBetween;
  } else if (link->latency.count() == 0) {  // not given
    cluster.inter.latency_seconds = kAssumedBetween.latency_seconds;
  }
  return cluster;
}

// Seconds for messages to `others` ranks at once: each keeps the rank busy, and the last one's latency remains.
double hop_seconds(int others, const LinkCost& link) {
  return others < 1 ? 0 : link.latency_seconds + (others - 1) * std::min(kBusySeconds, link.latency_seconds);
}

class Chooser {
 public:
  Chooser(const AllReduce& call, const Tiers& tiers, const std::optional<Link>& link)
      : call_(call), tiers_(tiers), cluster_(cluster_of(tiers, link)) {}

  [[nodiscard]] double two_shot() const {
    const Cost cost = two_shot_cost(cluster_, in_shards(), first_, second_);
    return cost.total - cost.latency + 2 * hop_seconds(cluster_.ranks - 1, cluster_.inter);
  }
  // Whether a message's latency exceeds its sending time, and no rank gets many messages at once. Two ranks send no
  // more bytes by one_shot than by two_shot, so larger messages are allowed there.
  [[nodiscard]] bool latency_may_rule() const {
    const double held = cluster_.inter.latency_seconds * cluster_.inter.bytes_per_second;
    return cluster_.ranks <= kMostAtOnce &&
           static_cast<double>(call_.count) * first_.bytes <= (cluster_.ranks == 2 ? kOfTwoRanks : 1) * held;
  }
  [[nodiscard]] double one_shot() const {
    constexpr double kChunk = kDefaultChunkBytes;  // gives as many lanes as two_shot, so that only hops are compared
    const Cost cost = one_shot_cost(cluster_, static_cast<double>(call_.count), first_, kChunk * cluster_.ranks);
    return cost.total - cost.latency + hop_seconds(cluster_.ranks - 1, cluster_.inter);
  }
  // Frames of all shards travel inside a node, and node sums of one place between nodes.
  [[nodiscard]] double hierarchical() const {
    const CodecCost intra = cost_of(intra_codec(call_.codec, call_.intra), call_.dtype);
    const Cost cost = hierarchical_cost(cluster_, in_shards(), intra, first_);
    const int inside = (cluster_.ranks_per_node - 1) * tiers_.nodes();
    const LinkCost turn{.latency_seconds = std::min(kTurnSeconds, cluster_.inter.latency_seconds)};
    return cost.total - cost.latency + 2 * hop_seconds(inside, turn) +
           2 * hop_seconds(tiers_.nodes() - 1, cluster_.inter);
  }

 private:
  // The elements, rounded up so that all shards are as large as the largest: shards are whole tiles, and everyone waits
  // for the link of the busiest node, or inside one node for the busiest rank.
  [[nodiscard]] double in_shards() const {
    const std::uint64_t tiles = (call_.count + codec::kTileElements - 1) / codec::kTileElements;
    const auto owners = static_cast<std::uint64_t>(tiers_.nodes() > 1 ? tiers_.nodes() : cluster_.ranks);
    return static_cast<double>(std::min((tiles + owners - 1) / owners * codec::kTileElements, call_.count) * owners);
  }

  const AllReduce& call_;
  const Tiers& tiers_;
  Cluster cluster_;
  CodecCost first_ = cost_of(call_.codec, call_.dtype);
  CodecCost second_ =
      cost_of(call_.second_hop.value_or(call_.codec), call_.dtype);  // less than real after topk: latency decides
};

// The reason for two_shot where nothing else is chosen.
std::string why_flat(const AllReduce& call, const Tiers& tiers) {
  if (std::string why = tiers.why_not_hierarchical(); !why.empty()) {
    return why;
  }
  return call.codec.k != 0 ? "topk sends less than sums inside nodes would take" : "quickest by the cost model";
}

}  // namespace

AlgorithmChoice choose_algorithm(const AllReduce& call, const Tiers& tiers, const std::optional<Link>& link) {
  if (tiers.world_size() == 1) {
    return {Algorithm::two_shot, "one rank"};
  }
  const bool native = call.native && call.codec == CodecSpec::exact() && !call.second_hop;
  if (native && call.count * element_bytes(call.dtype) < kNativeBelowBytes) {
    return {Algorithm::dense, "nothing to compress"};
  }
  const Chooser model(call, tiers, link);
  AlgorithmChoice best{Algorithm::two_shot, why_flat(call, tiers)};
  double shortest = model.two_shot();
  if (!call.second_hop && model.latency_may_rule() && model.one_shot() * kLeastGain < shortest) {
    best = {Algorithm::one_shot, "latency rules"};  // only without second_hop: one_shot has no owner that encodes
    shortest = model.one_shot();
  }
  if (tiers.why_not_hierarchical().empty() && call.codec.k == 0 && model.hierarchical() * kTieredGain < shortest) {
    best = {Algorithm::hierarchical, tiers.describe()};
  }
  if (native && best.algorithm != Algorithm::hierarchical) {
    return {Algorithm::dense, "nothing to compress"};
  }
  return best;
}

std::string algorithms_by_size(const AllReduce& call, const Tiers& tiers, const std::optional<Link>& link) {
  constexpr std::uint64_t kLeast = 1ULL << 10;
  constexpr std::uint64_t kMost = 1ULL << 30;
  std::string text;
  std::optional<Algorithm> last;
  for (std::uint64_t bytes = kLeast; bytes <= kMost; bytes *= 2) {
    AllReduce sized = call;
    sized.count = bytes / element_bytes(call.dtype);
    const Algorithm algorithm = choose_algorithm(sized, tiers, link).algorithm;
    if (last && algorithm != *last) {
      text += (text.empty() ? "" : ", ") + std::string(to_string(*last)) + " up to " + format_bytes(bytes / 2);
    }
    last = algorithm;
  }
  return text.empty() ? std::string(to_string(*last)) : text + ", " + std::string(to_string(*last)) + " above";
}

}  // namespace gradwire::exchange
