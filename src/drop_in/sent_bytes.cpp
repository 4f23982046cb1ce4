#include "drop_in/sent_bytes.hpp"

#include <algorithm>

#include "exchange/model/algorithm_choice.hpp"
#include "exchange/partition.hpp"
#include "exchange/resolved_call.hpp"
#include "exchange/stream/stream_executor.hpp"

namespace gradwire::drop_in {
namespace {

std::uint64_t frames(const codec::Codec& codec, std::uint64_t count, std::uint64_t chunks) {
  return codec.payload_bytes(count) + chunks * codec.frame_bytes(0);
}

// Returns the number of chunks. Empty ones have no frame.
std::uint64_t chunks_of(const exchange::Partition& partition, int shards) {
  const std::uint64_t each = std::max<std::uint64_t>(1, partition.chunk(0, 0).count);  // of the largest shard
  std::uint64_t chunks = 0;
  for (int shard = 0; shard < shards; ++shard) {
    chunks += (partition.shard_count(shard) + each - 1) / each;
  }
  return chunks;
}

Algorithm algorithm_of(const Router::Route& route, const Policy& policy) {
  if (is_nccl(route.what.function)) {
    return route.algorithm == Algorithm::one_shot ? Algorithm::one_shot : Algorithm::two_shot;
  }
  if (route.algorithm != Algorithm::automatic) {
    return route.algorithm;
  }
  return exchange::choose_algorithm({.codec = route.stage.codec,
                                     .second_hop = route.second_hop,
                                     .dtype = *route.what.dtype,
                                     .count = route.what.count},
                                    exchange::Tiers({}, route.what.communicator_size), policy.link)
      .algorithm;
}

}  // namespace

std::uint64_t sent_bytes(const Router::Route& route, const Policy& policy) {
  const int ranks = route.what.communicator_size;
  const std::uint64_t count = route.what.count;
  const auto others = static_cast<std::uint64_t>(ranks > 1 ? ranks - 1 : 0);
  const exchange::HopCodecs codecs =
      exchange::hop_codecs(route.stage.codec, route.second_hop.value_or(route.stage.second_hop), *route.what.dtype,
                           route.stage.error_feedback);
  const exchange::ChunkSize chunk = is_nccl(route.what.function)
                                        ? exchange::stream_chunks(ranks, policy.chunk_bytes)
                                        : exchange::ChunkSize::asked_or(policy.chunk_bytes, kDefaultChunkBytes);
  const bool scatters = is_reduce_scatter(route.what.function);
  const bool to_all = !scatters && algorithm_of(route, policy) == Algorithm::one_shot;
  const int shards = to_all ? 1 : ranks;
  const std::uint64_t chunks = chunks_of(exchange::Partition::even(count, shards, codecs, chunk), shards);
  if (to_all) {
    return others * frames(codecs.first, count, chunks);
  }
  const std::uint64_t once = frames(codecs.first, count, chunks);
  const std::uint64_t both = scatters ? once : once + frames(codecs.second, count, chunks);
  return others * both / static_cast<std::uint64_t>(ranks);
}

}  // namespace gradwire::drop_in
