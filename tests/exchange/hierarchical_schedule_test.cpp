// Tests schedules over two tiers: they fit together, and start with the frames that have the longest way.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "node_placements.hpp"

namespace gradwire::test {
namespace {

using exchange::Hop;
using exchange::Opcode;
using exchange::Tiers;

// Mutation tried: results are passed on in another order than the one in which they are awaited.
TEST(Hierarchical, SchedulesFitTogether) {
  for (const Nodes& nodes : kPlacements) {
    const Tiers tiers(nodes, world_of(nodes));
    for (const std::uint64_t count : kCounts) {
      for (const int window : {1, 4}) {
        for (const bool weighted : {false, true}) {
          SCOPED_TRACE(text_of(nodes) + " count " + std::to_string(count));
          const auto instructions = record_world(nodes, count, weighted, window, codecs_of("bf16", "int8"), 1 << 14);
          std::map<Hop, std::uint64_t> encoded;
          std::map<Hop, std::uint64_t> crossed;
          for (const auto& [rank, lane, instruction] : instructions) {
            if (instruction.hop == Hop::weight) {
              continue;
            }
            EXPECT_FALSE(instruction.chunk.empty());
            encoded[instruction.hop] +=
                instruction.opcode == Opcode::encode || instruction.opcode == Opcode::reduce_encode
                    ? instruction.chunk.count
                    : 0;
            crossed[instruction.hop] +=
                instruction.opcode == Opcode::send && tiers.node_of(rank) != tiers.node_of(instruction.peer)
                    ? instruction.chunk.count
                    : 0;
          }
          const auto n = static_cast<std::uint64_t>(tiers.nodes());
          const auto per_node = static_cast<std::uint64_t>(tiers.members(0).size());
          EXPECT_EQ(encoded[Hop::own], n * (per_node - 1) * count);
          EXPECT_EQ(encoded[Hop::node], (n - 1) * count);
          EXPECT_EQ(encoded[Hop::result], count) << "a result is encoded once, whatever the world";
          EXPECT_EQ(crossed[Hop::own], 0U);
          EXPECT_EQ(crossed[Hop::node], (n - 1) * count);
          EXPECT_EQ(crossed[Hop::result], (n - 1) * count);
        }
      }
    }
  }
}

// Mutation tried: the owner adds up its own shard before it sends the sums for which other nodes wait.
TEST(Hierarchical, SumsForOtherNodesLeaveFirstAndLanesOverlap) {
  const auto instructions = record_world({0, 0, 1, 1}, 64 * 4096, false, 4, codecs_of("bf16", "int8"), 1 << 14);
  const auto position = [&](int rank, std::uint64_t lane, Opcode opcode, Hop hop, int peer = -2) {
    const auto found =
        std::find_if(instructions.begin(), instructions.end(), [&](const exchange::RecordedInstruction& recorded) {
          return recorded.rank == rank && recorded.lane == lane && recorded.instruction.opcode == opcode &&
                 recorded.instruction.hop == hop && (peer == -2 || recorded.instruction.peer == peer);
        });
    EXPECT_NE(found, instructions.end());
    return found - instructions.begin();
  };
  for (int rank = 0; rank < 4; ++rank) {
    const int neighbour = rank ^ 1;
    const int counterpart = rank ^ 2;
    const auto sum = position(rank, 0, Opcode::reduce_encode, Hop::node);
    const auto sent = position(rank, 0, Opcode::send, Hop::node, counterpart);
    const auto result = position(rank, 0, Opcode::reduce_encode, Hop::result);
    EXPECT_LT(position(rank, 0, Opcode::send, Hop::own, neighbour), sum);
    EXPECT_LT(sum, sent);
    EXPECT_LT(sent, result);
    EXPECT_LT(result, position(rank, 0, Opcode::send, Hop::result, counterpart));
    EXPECT_LT(result, position(rank, 0, Opcode::send, Hop::result, neighbour));
  }
  EXPECT_LT(position(0, 1, Opcode::encode, Hop::own), position(0, 0, Opcode::decode, Hop::result))
      << "chunk 1 is encoded before chunk 0 is back";
}

}  // namespace
}  // namespace gradwire::test
