// Runs hierarchical where a library sums inside nodes, and makes a reference: it takes the nodes' sums as the library
// gave them, and encodes, adds and decodes one shard after the other. Results and residuals must have its bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exchange/resolved_call.hpp"
#include "exchange/tier_partition.hpp"
#include "tests/exchange/stream_harness.hpp"
#include "tests/support/node_reference.hpp"
#include "tests/support/simulated_codecs.hpp"

namespace gradwire::test {

struct NodeCall {
  int nodes = 2;
  int each = 2;           // ranks of a node
  bool in_turns = false;  // neighbouring ranks are on different nodes
  NodeOrder order = NodeOrder::ascending;
  CodecSpec codec = CodecSpec::parse("int8");
  CodecSpec second = CodecSpec::parse("int8");
  CodecSpec inside = CodecSpec::exact();
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  Reduction reduction = Reduction::sum;
  bool weighted = false;
  bool feedback = false;
  bool preconditioned = false;
  exchange::HeldResiduals held = {};
  int zero_rank = -1;
  std::uint32_t step = 0;
  std::uint64_t chunk_bytes = 1 << 24;

  [[nodiscard]] int world() const { return nodes * each; }
  [[nodiscard]] std::shared_ptr<const exchange::Tiers> tiers() const {
    std::vector<std::uint32_t> node_of;
    for (int rank = 0; rank < world(); ++rank) {
      node_of.push_back(static_cast<std::uint32_t>(in_turns ? rank % nodes : rank / each));
    }
    return std::make_shared<const exchange::Tiers>(node_of, world());
  }
  [[nodiscard]] exchange::Resolved resolve(int rank) const {
    return exchange::resolve({.algorithm = Algorithm::hierarchical,
                              .codec = codec,
                              .second_hop = second,
                              .intra = inside,
                              .dtype = dtype,
                              .count = count,
                              .weighted = weighted,
                              .feedback = feedback,
                              .preconditioned = preconditioned,
                              .held = held,
                              .chunk_bytes = exchange::ChunkSize::as_asked(chunk_bytes),
                              .native = {.in_nodes = true}},
                             {rank, world(), tiers()});
  }
  [[nodiscard]] exchange::TierPartition partition() const {
    return {count, *tiers(), exchange::ChunkSize::as_asked(chunk_bytes)};
  }
  [[nodiscard]] Call inputs() const {
    return {.first = codec,
            .second = second,
            .dtype = dtype,
            .count = count,
            .preconditioned = preconditioned,
            .zero_rank = zero_rank,
            .step = step};
  }
  [[nodiscard]] std::string text() const {
    return std::to_string(nodes) + " x " + std::to_string(each) + (in_turns ? " in turns " : " ") + codec.to_string() +
           "/" + second.to_string() + " inside " + inside.to_string() + " " + std::string(to_string(dtype)) + " x " +
           std::to_string(count) + (reduction == Reduction::mean ? " mean" : " sum") + (weighted ? " weighted" : "") +
           (feedback ? " feedback" : "") + (preconditioned ? " by scale" : "") + " order " +
           std::to_string(static_cast<int>(order)) + " chunks " + std::to_string(chunk_bytes) + " step " +
           std::to_string(step);
  }
};

/// The memory of all ranks, and what the library summed.
struct NodeOutcome {
  std::vector<RankMemory> ranks;
  std::vector<std::vector<float>> residuals;  // by rank, in the order of its parts
  std::vector<std::vector<NodeSum>> sums;
  std::vector<Statistics> statistics;

  explicit NodeOutcome(const NodeCall& call, const NodeOutcome* before = nullptr)
      : statistics(static_cast<std::size_t>(call.world())) {
    for (int rank = 0; rank < call.world(); ++rank) {
      ranks.emplace_back(call.inputs(), rank, call.world());
      std::uint64_t mine = 0;
      const auto lanes = call.partition();
      for (std::uint64_t lane = 0; lane < lanes.lanes(); ++lane) {
        mine += lanes.part(call.tiers()->place_of(rank), lane).count;
      }
      residuals.emplace_back(call.feedback || call.held.any ? mine : 0);
    }
    if (before != nullptr) {
      residuals = before->residuals;
    }
  }
};

struct NodeFaults {
  SimulatedDevice::Faults of_rank_1 = {};
  bool checks_races = true;
};

inline void run_in_nodes(const NodeCall& call, NodeOutcome& outcome, unsigned seed, const NodeFaults& faults = {},
                         std::uint64_t* waits = nullptr) {
  SimulatedWorld world(call.world(), seed);
  world.set_nodes(*call.tiers(), call.order);
  world.device(1).faults = faults.of_rank_1;
  std::vector<DeviceWords> words(outcome.ranks.size());
  const std::vector<float> scale = call.inputs().scale();
  for (int rank = 0; rank < call.world(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    SimulatedDevice& device = world.device(rank);
    device.checks_races = faults.checks_races;
    exchange::StreamExecutor executor(device);
    std::byte* powers = nullptr;
    if (call.preconditioned) {
      powers = device.acquire(call.count);
      static_cast<exchange::StreamBackend&>(device).measure_scale(scale.data(), call.count,
                                                                  reinterpret_cast<std::uint8_t*>(powers));
    }
    exchange::Resolved resolved = call.resolve(rank);
    exchange::StreamTask task = stream_task(call.inputs(), outcome.ranks[at], words[at], rank, call.world(), powers);
    task.call = std::move(resolved.call);
    task.reduction = call.reduction;
    task.node_residual = outcome.residuals[at].empty() ? nullptr : outcome.residuals[at].data();
    const auto execution = executor.run(std::move(resolved.schedule), std::move(task));
    EXPECT_TRUE(execution->enqueued());
    outcome.statistics[at] = execution->statistics();
    if (powers != nullptr) {
      device.release(powers);
    }
  }
  if (waits != nullptr) {
    *waits = world.device(1).waits();
  }
  world.run();
  outcome.sums = world.node_sums;
  for (int rank = 0; rank < call.world() && faults.checks_races; ++rank) {
    EXPECT_EQ(world.device(rank).live_bytes(), 0U) << "rank " << rank << " released less than it acquired";
    EXPECT_EQ(words[static_cast<std::size_t>(rank)].status.bad_frames, 0U);
  }
}

/// What the ranks must make of their nodes' sums.
inline NodeReference reference_of(const NodeCall& call) {
  const exchange::ResolvedCall resolved = call.resolve(0).call;
  double weights = 0;
  for (int rank = 0; rank < call.world(); ++rank) {
    weights += Call::weight(rank);
  }
  const bool divides = call.reduction == Reduction::mean && !resolved.scales_first();
  NodeReference reference{.tiers = *call.tiers(),
                          .partition = call.partition(),
                          .codecs = resolved.codecs,
                          .dtype = call.dtype,
                          .divisor = !divides        ? 1
                                     : call.weighted ? weights
                                                     : call.world(),
                          .feedback = call.feedback,
                          .bucket = 3,
                          .step = call.step};
  if (resolved.preconditioned) {
    reference.powers.resize(call.count);
    run_measure_scale(call.inputs().scale().data(), call.count, reference.powers.data());
  }
  return reference;
}

inline std::vector<double> numbers(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<double> all(bytes.size() / element_bytes(dtype));
  run_convert(bytes.data(), dtype, all.data(), DType::f64, all.size(), 1, 1);
  return all;
}

/// Returns the sum or mean of the inputs by double.
inline std::vector<double> true_result(const NodeCall& call, const NodeOutcome& before) {
  std::vector<double> sum(call.count);
  double weights = 0;
  for (int rank = 0; rank < call.world(); ++rank) {
    const RankMemory& memory = before.ranks[static_cast<std::size_t>(rank)];
    const double weight = call.weighted ? Call::weight(rank) : 1;
    const std::vector<double> input = numbers(memory.input, call.dtype);
    for (std::size_t i = 0; i < sum.size() && !memory.zeros; ++i) {
      sum[i] += weight * input[i];
    }
    weights += weight;
  }
  for (double& x : sum) {
    x /= call.reduction == Reduction::mean ? weights : 1;
  }
  return sum;
}

/// Runs the call and compares it with the reference; returns the outcome for a next call.
inline NodeOutcome compare_with_host(const NodeCall& call, unsigned seed, const NodeOutcome* before = nullptr) {
  SCOPED_TRACE(call.text() + " seed " + std::to_string(seed));
  NodeOutcome devices(call, before);
  std::vector<std::vector<float>> residuals = devices.residuals;
  const std::vector<double> wanted = true_result(call, devices);
  run_in_nodes(call, devices, seed);
  std::vector<std::byte> output = devices.ranks[0].input;
  reference_of(call).make(devices.sums, residuals, output);
  for (std::size_t rank = 0; rank < devices.ranks.size(); ++rank) {
    const RankMemory& memory = devices.ranks[rank];
    EXPECT_TRUE(memory.input == output) << "rank " << rank;
    EXPECT_TRUE(same_bits(devices.residuals[rank], residuals[rank])) << "rank " << rank;
  }
  const bool exact = call.codec == CodecSpec::exact() && call.second == CodecSpec::exact();
  const double bound = call.codec.k != 0 || call.feedback ? 2 : exact ? 0.003 : 0.5;
  if (call.preconditioned) {
    return devices;  // scales far apart and new in each step let errors grow
  }
  EXPECT_LE(relative_error(numbers(output, call.dtype), wanted), bound);
  return devices;
}

}  // namespace gradwire::test
