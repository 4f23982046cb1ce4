// A collective as data: for each lane (one chunk of every shard) an ordered list of instructions over abstract frame
// slots. Schedules know no dtype, no codec and no transport; executors run them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "codec/codec.hpp"
#include "exchange/partition.hpp"

namespace gradwire::exchange {

enum class Opcode : std::uint8_t {
  receive,        // slot <- peer; posted as soon as it is reached, done when the slot is next read
  send,           // slot -> peer
  encode,         // slot <- frame of this rank's input, weighted
  reduce,         // output <- sum of inputs, in rank order, divided for a mean
  reduce_encode,  // slot <- frame of that sum; at the site `intra` the frame of a node's part of it, not divided
  decode,         // output <- slot
  copy,           // output <- input (world of one)
  weight,         // slot <- this rank's weight
  sum_weights,    // total weight <- own and inputs, in rank order; every reduce waits for it
  native_ask,     // slot <- how many ranks do nothing but wait for this reduction, and sums of their terms and elements
  native_load,    // slot <- this rank's input as it is, weighted
  native_reduce,  // the transport's own all-reduce of the slot
  native_store,   // output <- slot, divided for a mean
  // On devices alone, where a library sums inside nodes (NodePart):
  node_load,    // slot <- this rank's input of the lane, weighted, as the library sums it
  node_sum,     // slot <- the sum of the node's inputs, of this rank's part
  node_fold,    // slot <- that sum with residuals that no encoder keeps, in the units in which it is encoded
  node_gather,  // inputs <- results, by shard: each rank of the node has those of its place and gets all others
};
[[nodiscard]] std::string_view to_string(Opcode opcode) noexcept;

using Slot = std::uint32_t;
/// Stands in Instruction::inputs for this rank's own, uncoded input.
inline constexpr Slot kOwnInput = ~Slot{0};

struct Instruction {
  Opcode opcode;
  Slot slot = 0;  // lane-local
  int peer = -1;
  Hop hop = Hop::own;
  // The number of the group, within the lane, in which a device sends or receives this message. It is the same on every
  // rank. Frames that are computed from messages of one round are sent in a later round. Round -1 comes before all
  // rounds of encoded frames.
  int round = 0;
  codec::EncodeSite site = codec::EncodeSite::none;
  Chunk chunk = {};
  // reduce: the terms of the sum, in this order; sum_weights: element r is rank r's; encode: the node's sum that it
  // reads, or none; weight, native_load, native_reduce and native_store: the answer to native_ask, where they wait for
  // it
  std::vector<Slot> inputs = {};
};

/// Calls body(slot) for every slot that the instruction reads, writes or sends.
template <class Body>
void for_each_slot(const Instruction& instruction, Body&& body) {
  for (const Slot input : instruction.inputs) {
    if (input != kOwnInput) {
      body(input);
    }
  }
  if (instruction.opcode != Opcode::reduce && instruction.opcode != Opcode::sum_weights &&
      instruction.opcode != Opcode::copy && instruction.opcode != Opcode::node_gather) {
    body(instruction.slot);
  }
}

/// The elements of a lane that this rank sums for its node, where a library does so.
struct NodePart {
  Chunk part = {};
  std::uint64_t each = 0;    // elements of each part of the node, in the order of places
  std::uint64_t rest = 0;    // elements by which the part of the last place is longer
  std::uint64_t ranks = 1;   // number of ranks on a node
  ChunkSeries shards = {};   // the chunks of the part, by the node of the rank that owns them
  std::uint64_t own = 0;     // the number of this rank's shard there: its node
  std::uint64_t before = 0;  // elements of this rank's parts in earlier lanes
  Slot sum = 0;
};

struct Lane {
  std::vector<Instruction> instructions;
  Slot slots = 0;                                    // number of slots that the instructions name
  std::optional<ChunkSeries> series = std::nullopt;  // the chunks of all shards as a formula, where there is one
  std::optional<NodePart> node = std::nullopt;       // set where a library sums inside nodes

  Slot add_slot() { return slots++; }
};

/// Lanes are made one by one as the executor reaches them, so that a schedule of any length takes little memory.
struct Schedule {
  std::string_view name;  // for messages: "two_shot all-reduce"
  std::uint64_t lanes = 0;
  std::function<Lane(std::uint64_t lane)> make_lane;
  /// The share of its uncompressed bytes that a perfect algorithm would send; below 1 where it sends more to save
  /// latency.
  struct Share {
    std::uint64_t of = 1;
    std::uint64_t all = 1;
  };
  Share dense_share = {};
  std::uint64_t chunk_elements = 0;  // of a two_shot all-reduce: most elements of a chunk; 0: another collective

  /// The bytes that an uncompressed call would send where this schedule sends a chunk of `bytes` in the tensors' dtype.
  [[nodiscard]] std::uint64_t dense_bytes(std::uint64_t bytes) const noexcept {
    return bytes * dense_share.of / dense_share.all;
  }
};

}  // namespace gradwire::exchange
