// The table of all-reduce algorithms, and the pieces that schedules share.
#include <array>
#include <string>
#include <vector>

#include "exchange/collectives.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace exchange {
namespace {

constexpr std::array kAlgorithms{
    AlgorithmEntry{Algorithm::two_shot, "two_shot", &all_reduce_two_shot},
    AlgorithmEntry{Algorithm::one_shot, "one_shot", &all_reduce_one_shot},
    AlgorithmEntry{Algorithm::hierarchical, "hierarchical", &all_reduce_hierarchical},
    AlgorithmEntry{Algorithm::dense, "dense",
                   &all_reduce_two_shot},  // over exact; native_all_reduce where that is better
};

constexpr std::string_view kAutomatic = "auto";  // no row, since callers replace it by an algorithm first

}  // namespace

std::span<const AlgorithmEntry> algorithms() noexcept { return kAlgorithms; }

Schedule all_reduce(Algorithm algorithm, const Shape& shape, std::uint64_t count, const HopCodecs& codecs) {
  if (shape.world_size == 1) {
    return copy_schedule("all-reduce", Partition::even(count, 1, codecs, shape.chunk_bytes));
  }
  for (const AlgorithmEntry& entry : kAlgorithms) {
    if (entry.algorithm == algorithm) {
      return entry.make(shape, count, codecs);
    }
  }
  throw Error(ErrorCode::internal,
              "all-reduce algorithm " + std::to_string(static_cast<int>(algorithm)) + " is not registered");
}

Schedule copy_schedule(std::string_view name, const Partition& partition) {
  return {name, partition.lanes(), [partition](std::uint64_t index) {
            Lane lane;
            lane.instructions.push_back({.opcode = Opcode::copy, .chunk = partition.chunk(0, index)});
            return lane;
          }};
}

void add_weight_exchange(Lane& lane, std::uint64_t lane_index, const Shape& shape, int round,
                         std::vector<Slot> answer) {
  if (!shape.weighted || lane_index != 0) {
    return;
  }
  const Slot own = lane.add_slot();
  lane.instructions.push_back(
      {.opcode = Opcode::weight, .slot = own, .hop = Hop::weight, .round = round, .inputs = std::move(answer)});
  std::vector<Slot> inputs(static_cast<std::size_t>(shape.world_size), own);
  for (int distance = 1; distance < shape.world_size; ++distance) {
    const int from = peer_after(shape, shape.world_size - distance);
    inputs[static_cast<std::size_t>(from)] = lane.add_slot();
    lane.instructions.push_back({.opcode = Opcode::receive,
                                 .slot = inputs[static_cast<std::size_t>(from)],
                                 .peer = from,
                                 .hop = Hop::weight,
                                 .round = round});
    lane.instructions.push_back(
        {.opcode = Opcode::send, .slot = own, .peer = peer_after(shape, distance), .hop = Hop::weight, .round = round});
  }
  lane.instructions.push_back({.opcode = Opcode::sum_weights, .hop = Hop::weight, .inputs = std::move(inputs)});
}

std::string_view to_string(Opcode opcode) noexcept {
  switch (opcode) {
    case Opcode::receive: return "receive";
    case Opcode::send: return "send";
    case Opcode::encode: return "encode";
    case Opcode::reduce: return "reduce";
    case Opcode::reduce_encode: return "reduce_encode";
    case Opcode::decode: return "decode";
    case Opcode::copy: return "copy";
    case Opcode::weight: return "weight";
    case Opcode::sum_weights: return "sum_weights";
    case Opcode::native_ask: return "native_ask";
    case Opcode::native_load: return "native_load";
    case Opcode::native_reduce: return "native_reduce";
    case Opcode::native_store: return "native_store";
    case Opcode::node_load: return "node_load";
    case Opcode::node_sum: return "node_sum";
    case Opcode::node_fold: return "node_fold";
    case Opcode::node_gather: return "node_gather";
  }
  return "unknown";
}

}  // namespace exchange

std::string_view to_string(Algorithm algorithm) noexcept {
  if (algorithm == Algorithm::automatic) {
    return exchange::kAutomatic;
  }
  for (const exchange::AlgorithmEntry& entry : exchange::algorithms()) {
    if (entry.algorithm == algorithm) {
      return entry.name;
    }
  }
  return "unknown";
}

Algorithm parse_algorithm(std::string_view text) {
  if (text == exchange::kAutomatic) {
    return Algorithm::automatic;
  }
  std::string names(exchange::kAutomatic);
  for (const exchange::AlgorithmEntry& entry : exchange::algorithms()) {
    if (entry.name == text) {
      return entry.algorithm;
    }
    names += ", " + std::string(entry.name);
  }
  throw Error(ErrorCode::invalid_argument, "unknown algorithm \"" + std::string(text) + "\": write one of " + names);
}

}  // namespace gradwire
