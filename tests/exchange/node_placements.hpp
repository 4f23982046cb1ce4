// Lists placements of ranks on nodes, and makes the hierarchical schedules of a world on them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exchange/collectives.hpp"
#include "exchange/resolved_call.hpp"
#include "tests/support/recording_executor.hpp"

namespace gradwire::test {

using Nodes = std::vector<std::uint32_t>;

// The placements are 2x2, 2x3, 3x2, 2x4, ranks dealt out in turn, and one without any order.
#ifdef __SANITIZE_THREAD__  // the same paths; this build is up to 15 times slower
inline const std::vector<Nodes> kPlacements{{0, 0, 0, 1, 1, 1}, {2, 0, 1, 1, 0, 2}};
#else
inline const std::vector<Nodes> kPlacements{
    {0, 0, 1, 1}, {0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 2, 2}, {7, 7, 7, 7, 1, 1, 1, 1}, {0, 1, 0, 1}, {2, 0, 1, 1, 0, 2}};
#endif
inline constexpr std::uint64_t kCounts[] = {0, 1, 4095, 4096, 4097, 8 * 4096, 60001};

inline int world_of(const Nodes& nodes) { return static_cast<int>(nodes.size()); }

inline std::string text_of(const Nodes& nodes) { return "nodes " + exchange::Tiers(nodes, world_of(nodes)).text(); }

inline std::vector<exchange::RecordedInstruction> record_world(const Nodes& nodes, std::uint64_t count, bool weighted,
                                                               int window, const exchange::HopCodecs& codecs,
                                                               exchange::ChunkSize chunk_bytes) {
  const auto tiers = std::make_shared<const exchange::Tiers>(nodes, world_of(nodes));
  std::vector<exchange::Schedule> schedules;
  for (int rank = 0; rank < world_of(nodes); ++rank) {
    schedules.push_back(exchange::all_reduce(
        Algorithm::hierarchical, {rank, world_of(nodes), weighted, chunk_bytes, false, tiers}, count, codecs));
  }
  return exchange::record(schedules, window);
}

inline exchange::HopCodecs codecs_of(const char* intra, const char* inter, DType dtype = DType::f32) {
  const CodecSpec between = CodecSpec::parse(inter);
  return exchange::hop_codecs(CodecSpec::parse(intra), between, dtype, false, between);
}

}  // namespace gradwire::test
