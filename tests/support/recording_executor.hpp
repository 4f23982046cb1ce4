// Runs schedules without data: it records the steps in order, and checks whether all ranks' schedules fit together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/schedule.hpp"

namespace gradwire::exchange {

struct RecordedInstruction {
  int rank = 0;
  std::uint64_t lane = 0;
  Instruction instruction;
};

/// Runs the schedules of a whole world (element r is rank r's) against each other, each rank with `window` lanes in
/// flight and the host executor's order. Error(internal) names the first instruction that can never run, a message that
/// nobody receives, or a pair of instructions that disagree about a chunk.
[[nodiscard]] std::vector<RecordedInstruction> record(std::span<const Schedule> world, int window);

}  // namespace gradwire::exchange
