// Tests what codec = "auto" over NCCL ends at in each cell of the model's table (gradwire plan --gpu): the gate of the
// drop-in gets the times that the model expects of the ways that the cluster has, and no cell may lose.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "cli/gpu_file.hpp"
#include "cli/gpu_plan.hpp"
#include "exchange/stream/device_forecast.hpp"
#include "tests/choice/device_gate_world.hpp"

namespace gradwire::cli {
namespace {

using choice::DeviceGate;
using choice::GateWorld;
using choice::Way;
using exchange::DeviceWay;

constexpr double kMostLoss = 0.97;  // of NCCL's speed
constexpr std::uint64_t kCalls = 10000;
constexpr int kRanks = 3;  // others would see the same times
constexpr std::uint64_t kBytesOfMiB = 1 << 20;

/// A cell of the table: a cluster and a size.
struct Cell {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<double> seconds;  // by way; 0 is NCCL's call

  [[nodiscard]] double ratio(Way way) const { return seconds[0] / seconds[way]; }
  [[nodiscard]] double best() const { return seconds[0] / *std::min_element(seconds.begin(), seconds.end()); }
};

// The executor as it was is no way of the gate.
std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const char* preset : {"nvlink_2", "nvlink_4", "nvlink_8", "pcie_8", "ethernet_8x8", "infiniband_8x8"}) {
    const exchange::DeviceCluster cluster = load_gpu_file(
        std::filesystem::path(GRADWIRE_SOURCE_DIR) / "python-free-examples/gpus" / (std::string(preset) + ".toml"));
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::uint64_t mib : {1, 4, 25, 256}) {
        Cell cell{.name = std::string(preset) + ", " + std::to_string(mib) + " MiB of " + std::string(to_string(dtype)),
                  .bytes = mib * kBytesOfMiB,
                  .seconds = {}};
        for (const DeviceWay way : device_ways(cluster)) {
          if (way != DeviceWay::four_lanes) {
            cell.seconds.push_back(
                forecast_device(cluster, way,
                                {.count = cell.bytes / element_bytes(dtype), .dtype = dtype, .codec = gpu_codec()})
                    .seconds);
          }
        }
        all.push_back(std::move(cell));
      }
    }
  }
  return all;
}

/// What becomes of the calls of a cell.
struct Outcome {
  double speed = 0;          // NCCL's time over that of all calls, trials included
  std::uint64_t losing = 0;  // calls for the job that went a way that takes longer than NCCL's
  Way last = 0;
  std::uint64_t trials = 0;
};

// Times vary by up to 2% from call to call and from rank to rank. `expected`: the gate is told what the model expects,
// as where the policy states the link. `steps`: the job's steps are known.
Outcome run(const Cell& cell, bool expected, bool steps, std::uint64_t seed) {
  const auto noise = [seed](std::uint64_t call, Way way, int rank) {
    std::minstd_rand random(static_cast<std::uint32_t>(seed + 97 * call + 13 * way + static_cast<std::uint64_t>(rank)));
    random.discard(2);
    return std::uniform_real_distribution<double>(0.98, 1.02)(random);
  };
  GateWorld world(
      {.ranks = kRanks,
       .ways = cell.seconds.size(),
       .seconds = [&](std::uint64_t call, Way way, int rank) { return cell.seconds[way] * noise(call, way, rank); },
       .calls_in_step = steps ? 20U : 0U,
       .rest = [&](Way) { return 20 * cell.seconds[0]; }});
  std::vector<double> ratios;
  for (const double seconds : cell.seconds) {
    ratios.push_back(seconds / cell.seconds[0]);
  }
  for (std::size_t rank = 0; expected && rank < kRanks; ++rank) {
    world.gate(rank).expect(choice::gate_class(cell.bytes), ratios);
  }
  Outcome outcome;
  for (std::uint64_t call = 0; call < kCalls; ++call) {
    outcome.last = world.call(cell.bytes);
    outcome.losing += cell.ratio(outcome.last) < 1 ? 1 : 0;
    EXPECT_LE(static_cast<double>(world.trials()), DeviceGate::kTrialShare * static_cast<double>(world.made()));
  }
  outcome.speed = world.nccl / (world.total + world.probes);
  outcome.trials = world.trials();
  return outcome;
}

// Mutations tried, each fails here: a rival is adopted below 1.15 of the time; a slower rival is adopted, and a faster
// one is not.
TEST(GpuGate, NoCellOfTheTableEndsBelowNccl) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::size_t wins = 0;
  std::size_t losers = 0;
  for (const Cell& cell : cells()) {
    for (const bool expected : {false, true}) {
      for (const bool steps : {false, true}) {
        SCOPED_TRACE(cell.name + (expected ? ", as expected" : "") + (steps ? ", in steps" : ""));
        const Outcome outcome = run(cell, expected, steps, seed);
        EXPECT_GE(outcome.speed, kMostLoss);
        EXPECT_GE(cell.ratio(outcome.last), kMostLoss);
        EXPECT_EQ(outcome.losing, 0U);
        EXPECT_GE(cell.ratio(outcome.last), kMostLoss * std::max(1.0, cell.best())) << "the best way is left out";
        EXPECT_GE(outcome.trials, expected && cell.best() == 1 ? 0U : DeviceGate::kBlock);
        wins += outcome.speed > 1.03 ? 1 : 0;
        losers += cell.best() == 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(wins, 50U) << "something is compressed";
  EXPECT_GT(losers, 10U) << "and there are cells in which nothing is faster than NCCL";
}

// The cell that the table marks: tiers with f32 sums inside nodes, where each GPU has an InfiniBand card.
TEST(GpuGate, TheCellThatLosesInTiersStaysNccls) {
  for (const Cell& cell : cells()) {
    if (cell.name != "infiniband_8x8, 25 MiB of f32") {
      continue;
    }
    ASSERT_EQ(cell.seconds.size(), 3U);
    EXPECT_NEAR(cell.ratio(2), 0.91, 0.02);
    const Outcome outcome = run(cell, false, true, 1);
    EXPECT_EQ(outcome.last, 0);
    EXPECT_EQ(outcome.losing, 0U);
    EXPECT_GE(outcome.trials, 2 * DeviceGate::kBlock) << "both ways were measured";
    return;
  }
  FAIL() << "no such cell";
}

}  // namespace
}  // namespace gradwire::cli
