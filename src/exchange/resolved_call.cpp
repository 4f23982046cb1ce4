#include "exchange/resolved_call.hpp"

#include <numeric>
#include <string>
#include <utility>

#include "exchange/partition.hpp"
#include "exchange/tier_partition.hpp"
#include "gradwire/error.hpp"

namespace gradwire::exchange {
namespace {

bool lossy(const CodecSpec& spec) { return codec::Codec(spec, DType::f32).lossy(); }

// The codecs of a call's encodings, and how many encodings there are.
struct Encodings {
  CodecSpec first;
  CodecSpec between;  // for sums over a node, where `tiered`; otherwise equal to `first`
  CodecSpec second;   // where the owner encodes its sum; otherwise equal to `between`
  bool tiered = false;
  bool twice = false;
  std::optional<DType> node_sums = std::nullopt;  // see ResolvedCall

  [[nodiscard]] bool any_exact() const { return !lossy(first) || !lossy(between) || !lossy(second); }
  /// Whether some encoding keeps values exactly: all of them, or those that topk selects.
  [[nodiscard]] bool any_exact_values() const {
    return !lossy(CodecSpec(first.values)) || !lossy(CodecSpec(between.values)) || !lossy(CodecSpec(second.values));
  }
};

// Exact sums of 16 bits are made in f32, as on hosts.
DType node_sums_of(const CallRequest& request) {
  const CodecSpec bf16 = CodecSpec::parse("bf16");
  const CodecSpec intra = request.intra.value_or(CodecSpec::exact());
  if (intra != bf16 && intra != CodecSpec::exact()) {
    throw Error(ErrorCode::unsupported, "the library sums inside nodes in f32 or bf16, not by " + intra.to_string() +
                                            "; let the codec inside nodes be exact or bf16");
  }
  return intra == bf16 ? DType::bf16 : request.dtype == DType::f64 ? DType::f64 : DType::f32;
}

Encodings encodings_of(const CallRequest& request, const RankGroup& group) {
  const bool all_reduce = request.collective == Collective::all_reduce;
  Encodings encodings;
  encodings.between = request.algorithm == Algorithm::dense ? CodecSpec::exact() : request.codec;
  encodings.twice = all_reduce && encodes_at_owner(request.algorithm);
  encodings.tiered = all_reduce && request.algorithm == Algorithm::hierarchical && has_tiers(group);
  if (request.native.in_nodes) {
    encodings.tiered = encodings.tiered && TierPartition::fits(request.count, group.size);
    encodings.node_sums = encodings.tiered ? std::optional(node_sums_of(request)) : std::nullopt;
  }
  const bool codes_inside = encodings.tiered && !encodings.node_sums;
  encodings.first = codes_inside ? request.intra.value_or(encodings.between) : encodings.between;
  encodings.second = encodings.twice ? request.second_hop.value_or(encodings.between) : encodings.between;
  return encodings;
}

ResidualSites residual_sites(const CallRequest& request, const Encodings& encodings, const RankGroup& group) {
  if (!request.feedback || group.size == 1 || request.count == 0) {
    return {};
  }
  return {.local = lossy(encodings.first) && !encodings.node_sums,
          .intra = encodings.tiered && lossy(encodings.between),
          .owner = encodings.twice && lossy(encodings.second)};
}

// Sets the elements that this rank encodes at each site that keeps residuals.
void set_ranges(ResidualUse& use, const CallRequest& request, const HopCodecs& codecs, const RankGroup& group,
                bool by_library) {
  if (use.keeps.local && request.collective == Collective::all_gather) {
    use.local = segment_of(request, group.rank);
  } else if (use.keeps.local) {
    use.local = {0, request.count};
  }
  if (!use.keeps.owner && !use.keeps.intra) {
    return;
  }
  if (by_library) {
    use.parts = parts_of(request.count, request.chunk_bytes, group);
    return;
  }
  const Partition shards = Partition::even(request.count, group.size, codecs, request.chunk_bytes);
  const auto shard = [&](int rank) { return ResidualUse::Range{shards.shard_first(rank), shards.shard_count(rank)}; };
  if (use.keeps.owner) {
    use.owned = shard(group.rank);
  }
  for (int node = 0; use.keeps.intra && node < group.tiers->nodes(); ++node) {
    const int there = group.tiers->members(node)[static_cast<std::size_t>(group.tiers->place_of(group.rank))];
    if (there != group.rank) {
      use.summed.push_back(shard(there));
    }
  }
}

// Ranks that compare their terms must decide by properties that all see alike. Residuals may have widened a tensor on
// some ranks only, so there a widened tensor travels in frames.
bool is_native_by(const CallRequest& request, const HopCodecs& codecs, const RankGroup& group) {
  const NativeSum& native = request.native;
  const DType dtype = codecs.first.dtype();
  return request.collective == Collective::all_reduce && request.algorithm == Algorithm::dense && group.size > 1 &&
         native.has(dtype) && (native.asks || request.count * element_bytes(dtype) < native.below) &&
         (dtype == request.dtype || !native.compares_terms);
}

Schedule schedule_of(const CallRequest& request, const ResolvedCall& call, const RankGroup& group) {
  const Shape shape{group.rank, group.size, call.weighted, request.chunk_bytes, call.residuals.folds_owner,
                    group.tiers};
  if (is_native_by(request, call.codecs, group)) {
    return native_all_reduce(shape, request.count,
                             {.asks = request.native.asks,
                              .compares_terms = request.native.compares_terms,
                              .compares_first = request.native.compares_first});
  }
  switch (request.collective) {
    case Collective::reduce_scatter: return reduce_scatter(shape, request.segments, call.codecs);
    case Collective::all_gather: return all_gather(shape, request.segments, call.codecs);
    case Collective::broadcast: return broadcast(shape, request.root, request.count, call.codecs);
    case Collective::all_reduce: break;
  }
  if (call.node_sums) {
    return all_reduce_node_sums(shape, request.count, call.codecs);
  }
  // A library that sums inside nodes runs no frames of hosts' there.
  const bool flat = request.native.in_nodes && request.algorithm == Algorithm::hierarchical;
  return all_reduce(flat ? Algorithm::two_shot : request.algorithm, shape, request.count, call.codecs);
}

ResidualUse residual_use(const CallRequest& request, const Encodings& encodings, const RankGroup& group) {
  ResidualUse use{.keeps = residual_sites(request, encodings, group)};
  use.any = use.keeps.any() || request.held.any;
  use.moved = request.held.moved;
  use.folds_owner = request.weighted && request.held.any && (!use.keeps.owner || request.held.moved);
  return use;
}

// A call that loses nothing does not gain by encoding in units of a scale.
bool preconditions(const CallRequest& request, const Encodings& encodings, const RankGroup& group) {
  return request.preconditioned && group.size > 1 &&
         (lossy(encodings.first) || lossy(encodings.between) || lossy(encodings.second));
}

// Residuals that are folded in travel together with exact values, so these need more than 16 bits. Values in units of
// a scale are f32 for the same reason.
HopCodecs codecs_of(const CallRequest& request, const Encodings& encodings, const ResidualUse& use,
                    const RankGroup& group) {
  const bool scaled = preconditions(request, encodings, group);
  const bool widened = (use.any && encodings.any_exact()) || (scaled && encodings.any_exact_values());
  const HopCodecs codecs =
      hop_codecs(encodings.first, encodings.second, scaled && request.dtype == DType::f64 ? DType::f32 : request.dtype,
                 widened, encodings.tiered ? std::optional(encodings.between) : std::nullopt);
  // Where a library sums inside nodes, the first thing that a rank encodes is its node's sum.
  return encodings.node_sums ? HopCodecs(codecs.node, codecs.second, codecs.node) : codecs;
}

// Checks what callers have checked before, so a failure here is a bug of theirs.
void check(const CallRequest& request, const RankGroup& group) {
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < group.size; };
  const bool in_segments =
      request.collective == Collective::reduce_scatter || request.collective == Collective::all_gather;
  const std::vector<std::uint64_t>& segments = request.segments;
  if (request.algorithm == Algorithm::automatic) {
    throw Error(ErrorCode::internal, "an all-reduce whose algorithm nobody chose");
  }
  if (!is_rank(group.rank) || (request.collective == Collective::broadcast && !is_rank(request.root)) ||
      (in_segments && (segments.size() != static_cast<std::size_t>(group.size) ||
                       std::accumulate(segments.begin(), segments.end(), std::uint64_t{0}) != request.count))) {
    throw Error(ErrorCode::internal, "a call of rank " + std::to_string(group.rank) + " of " +
                                         std::to_string(group.size) + " has root " + std::to_string(request.root) +
                                         " and " + std::to_string(segments.size()) + " segments, which do not fit " +
                                         std::to_string(request.count) + " elements");
  }
}

}  // namespace

ResidualUse::Range segment_of(const CallRequest& request, int rank) {
  const auto mine = request.segments.begin() + rank;
  return {std::accumulate(request.segments.begin(), mine, std::uint64_t{0}), *mine};
}

Resolved resolve(const CallRequest& request, const RankGroup& group) {
  check(request, group);
  const Encodings encodings = encodings_of(request, group);
  ResidualUse use = residual_use(request, encodings, group);
  const HopCodecs codecs = codecs_of(request, encodings, use, group);
  set_ranges(use, request, codecs, group, encodings.node_sums.has_value());
  ResolvedCall call{.codecs = codecs,
                    .weighted = request.weighted,
                    .residuals = std::move(use),
                    .preconditioned = preconditions(request, encodings, group),
                    .node_sums = encodings.node_sums};
  Schedule schedule = schedule_of(request, call, group);
  return {std::move(call), std::move(schedule)};
}

bool is_native(const CallRequest& request, const RankGroup& group) {
  const Encodings encodings = encodings_of(request, group);
  return is_native_by(request, codecs_of(request, encodings, residual_use(request, encodings, group), group), group);
}

std::vector<ResidualUse::Part> parts_of(std::uint64_t count, ChunkSize chunks, const RankGroup& group) {
  std::vector<ResidualUse::Part> parts;
  if (!has_tiers(group) || !TierPartition::fits(count, group.size)) {
    return parts;
  }
  const TierPartition lanes(count, *group.tiers, chunks);
  const int place = group.tiers->place_of(group.rank);
  const auto node = static_cast<std::uint64_t>(group.tiers->node_of(group.rank));
  for (std::uint64_t lane = 0; lane < lanes.lanes(); ++lane) {
    const Chunk part = lanes.part(place, lane);
    const Chunk own = lanes.shards_of(place, lane).chunk(node);
    parts.push_back({{part.first, part.count}, {own.first, own.count}});
  }
  return parts;
}

std::uint64_t elements_of(const std::vector<ResidualUse::Part>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const ResidualUse::Part& part) { return sum + part.summed.count; });
}

bool has_tiers(const RankGroup& group) { return group.tiers != nullptr && group.tiers->why_not_hierarchical().empty(); }

HopCodecs hop_codecs(CodecSpec first, CodecSpec second, DType dtype, bool widened, std::optional<CodecSpec> node) {
  const DType wide = element_bytes(dtype) < element_bytes(DType::f32) ? DType::f32 : dtype;
  // Exact parts of a lossy sum are weighted before they travel, and then need more than 16 bits.
  const bool mixed = node && !codec::Codec(first, wide).lossy() && codec::Codec(*node, wide).lossy();
  const DType wire = widened || mixed ? wide : dtype;
  const CodecSpec sums = node.value_or(first);
  const HopCodecs codecs{{first, wire}, {second, wire}, {sums, node ? wide : wire}};
  if (codecs.first.working() == codecs.second.working() && codecs.first.working() == codecs.node.working()) {
    return codecs;
  }
  return {{first, DType::f32}, {second, DType::f32}, {sums, DType::f32}};
}

NativeSum native_sum(const Transport& transport, std::uint64_t below) {
  const TransportCapabilities capabilities = transport.capabilities();
  return {.f32 = capabilities.native_all_reduce_f32, .f64 = capabilities.native_all_reduce_f64, .below = below};
}

bool dense_in_call(const Transport& transport, DType dtype, std::uint64_t count, const Tiers& tiers) {
  const std::uint64_t bytes = count * element_bytes(dtype);
  return transport.capabilities().all_reduce_in_call && native_sum(transport).has(dtype) &&
         transport.world_size() > 1 && tiers.nodes() == 1 && bytes >= kNativeBelowBytes && bytes < kInCallBelowBytes;
}

}  // namespace gradwire::exchange
