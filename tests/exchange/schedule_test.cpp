// Tests that the schedules of every registered algorithm fit together on all ranks, send no empty frame, and follow
// chunk size and world.
#include "exchange/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "exchange/collectives.hpp"
#include "gradwire/error.hpp"
#include "tests/support/recording_executor.hpp"

namespace gradwire::exchange {
namespace {

codec::Codec exact() { return {CodecSpec::parse("exact"), DType::f32}; }

template <typename Make>
std::vector<RecordedInstruction> record_world(int world, int window, Make&& make) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < world; ++rank) {
    schedules.push_back(make(rank));
  }
  return record(schedules, window);
}

std::size_t count_of(const std::vector<RecordedInstruction>& instructions, Opcode opcode) {
  return static_cast<std::size_t>(std::count_if(instructions.begin(), instructions.end(),
                                                [&](const auto& s) { return s.instruction.opcode == opcode; }));
}

constexpr std::uint64_t kCounts[] = {0, 1, 4096, 4097, 50000, 300000};

TEST(Schedules, EveryAlgorithmFitsTogether) {
  for (const AlgorithmEntry& entry : algorithms()) {
    for (const int world : {1, 2, 3, 4, 7, 8}) {
      for (const std::uint64_t count : kCounts) {
        for (const int window : {1, 4}) {
          for (const bool weighted : {false, true}) {
            SCOPED_TRACE(std::string(entry.name) + " world " + std::to_string(world) + " count " +
                         std::to_string(count));
            const auto instructions = record_world(world, window, [&](int rank) {
              return all_reduce(entry.algorithm, {rank, world, weighted, 1 << 15}, count, exact());
            });
            EXPECT_EQ(count_of(instructions, Opcode::send), count_of(instructions, Opcode::receive));
            for (const RecordedInstruction& recorded : instructions) {
              if (recorded.instruction.hop != Hop::weight && recorded.instruction.opcode != Opcode::sum_weights) {
                EXPECT_FALSE(recorded.instruction.chunk.empty());
              }
            }
          }
        }
      }
    }
  }
}

TEST(Schedules, OthersFitTogether) {
  for (const int world : {1, 2, 3, 4, 7, 8}) {
    for (const std::uint64_t count : kCounts) {
      SCOPED_TRACE("world " + std::to_string(world) + " count " + std::to_string(count));
      std::vector<std::uint64_t> counts(static_cast<std::size_t>(world));
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        counts[rank] = rank % 3 == 1 ? 0 : count + rank;
      }
      record_world(world, 2, [&](int rank) { return reduce_scatter({rank, world, true, 1 << 15}, counts, exact()); });
      record_world(world, 2, [&](int rank) { return all_gather({rank, world, false, 1 << 15}, counts, exact()); });
      for (int root = 0; root < world; ++root) {
        record_world(world, 2, [&](int rank) {
          return broadcast({rank, world, false, 1 << 15}, root, count, exact());
        });
      }
    }
  }
}

TEST(Schedules, TwoShotEncodesEachElementTwice) {
  for (const int world : {2, 3, 8}) {
    const std::uint64_t count = 200000;
    const auto instructions = record_world(world, 4, [&](int rank) {
      return all_reduce_two_shot({rank, world, false, 1 << 15}, count, exact());
    });
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    std::uint64_t sent = 0;
    for (const RecordedInstruction& recorded : instructions) {
      first += recorded.instruction.opcode == Opcode::encode ? recorded.instruction.chunk.count : 0;
      second += recorded.instruction.opcode == Opcode::reduce_encode ? recorded.instruction.chunk.count : 0;
      sent += recorded.instruction.opcode == Opcode::send ? recorded.instruction.chunk.count : 0;
    }
    EXPECT_EQ(first, count * static_cast<std::uint64_t>(world - 1));  // each rank encodes everything but its own shard
    EXPECT_EQ(second, count);                                         // only owners encode, whatever the world
    EXPECT_EQ(sent, 2 * count * static_cast<std::uint64_t>(world - 1));
  }
}

TEST(Schedules, FramesScaleWithTheChunkSize) {
  const auto frames = [](std::uint64_t chunk_bytes) {
    return count_of(record_world(2, 4,
                                 [&](int rank) {
                                   return all_reduce_two_shot({rank, 2, false, chunk_bytes}, 64 * 4096, exact());
                                 }),
                    Opcode::send);
  };
  EXPECT_EQ(frames(1 << 14), 2 * frames(1 << 15));
  EXPECT_EQ(frames(1 << 15), 2 * frames(1 << 16));
}

template <class Spoil>
void expect_noticed(Spoil&& spoil) {
  std::vector<Schedule> world;
  for (int rank = 0; rank < 2; ++rank) {
    Schedule schedule = all_reduce_two_shot({rank, 2, false, 1 << 15}, 8192, exact());
    if (rank == 1) {
      schedule.make_lane = [make = schedule.make_lane, spoil](std::uint64_t index) {
        Lane lane = make(index);
        spoil(lane.instructions);
        return lane;
      };
    }
    world.push_back(schedule);
  }
  EXPECT_THROW((void)record(world, 4), Error);
}

TEST(Schedules, RecorderSeesAMissingReceive) {
  expect_noticed([](std::vector<Instruction>& instructions) {
    std::erase_if(instructions, [](const Instruction& instruction) {
      return instruction.opcode == Opcode::send && instruction.hop == Hop::result;
    });
  });
}

TEST(Schedules, RecorderSeesAMessageInAnotherRound) {
  expect_noticed([](std::vector<Instruction>& instructions) {
    for (Instruction& instruction : instructions) {
      instruction.round += instruction.opcode == Opcode::send && instruction.hop == Hop::result ? 1 : 0;
    }
  });
}

}  // namespace
}  // namespace gradwire::exchange
