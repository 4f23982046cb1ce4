// Tests the window: as many lanes as keep a link full, whatever its rate and latency, within its memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "exchange/collectives.hpp"
#include "exchange/resolved_call.hpp"
#include "tests/support/simulated_links.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

using namespace exchange;  // NOLINT(google-build-using-namespace): tests internals

constexpr double kBits = 8;
constexpr double kRates[] = {10e6, 100e6, 1e9, 10e9, 100e9};                        // bit/s
constexpr double kLatencies[] = {10e-6, 100e-6, 1e-3, 5e-3, 20e-3, 50e-3, 200e-3};  // seconds
constexpr std::uint64_t kTilesALane = 13;                                           // tiles of int8 in 56 KiB

// Returns all rates with all latencies, or a part of them.
std::vector<SimulatedLink> all_links(bool hides_queue) {
  std::vector<SimulatedLink> links;
  int at = 0;
  for (const double bits : kRates) {
    for (const double latency : kLatencies) {
      if (at++ % kStepShare == 0) {
        links.push_back({bits / kBits, latency, 0, hides_queue});
      }
    }
  }
  return links;
}

// A world whose ranks all make the same all-reduce.
struct World {
  int ranks;
  std::vector<Schedule> schedules = {};
  HopCodecs codecs = hop_codecs("int8", "int8", DType::f32);

  World(int size, std::uint64_t lanes, Algorithm algorithm = Algorithm::two_shot) : ranks(size) {
    const std::uint64_t count = static_cast<std::uint64_t>(size) * lanes * kTilesALane * codec::kTileElements;
    for (int rank = 0; rank < size; ++rank) {
      schedules.push_back(
          resolve({.algorithm = algorithm, .codec = "int8", .second_hop = "int8", .count = count}, {rank, size})
              .schedule);
    }
  }
  [[nodiscard]] std::uint64_t frame_bytes(const Instruction& instruction) const {
    return codecs.of(instruction.hop).frame_bytes(instruction.chunk.count);
  }
  [[nodiscard]] LaneLoad load() const {
    return load_of(
        schedules[0].make_lane(0), [this](const Instruction& instruction) { return frame_bytes(instruction); },
        [this](Hop hop, std::uint64_t count) { return codecs.of(hop).room_bytes(count); });
  }
  double run(SimulatedLinks& links) const {
    return links.run(schedules, [this](const Instruction& instruction) { return frame_bytes(instruction); });
  }
};

// Returns the number of lanes whose frames fit the memory bound, or that are always allowed.
double allowed_lanes(const World& world, const WindowLimits& limits) {
  const auto fit = static_cast<double>(limits.memory_bytes / world.load().memory);
  return std::clamp(fit, double{kLeastLanes}, double{kMostLanes});
}

// Returns the best possible time with those lanes, limited by the link's rate or by one round of all lanes per latency.
double best_seconds(const World& world, const SimulatedLinks& links, const SimulatedLink& link, double lanes) {
  const LaneLoad load = world.load();
  const double round = load.hops * link.latency_seconds + static_cast<double>(load.travels) / link.bytes_per_second;
  const double rate = std::min(link.bytes_per_second, lanes * static_cast<double>(load.travels) / round);
  return static_cast<double>(links.sent_bytes()) / rate + load.hops * link.latency_seconds;
}

std::string describe(const SimulatedLink& link) {
  return std::to_string(link.bytes_per_second * kBits / 1e6) + " Mbit/s, " +
         std::to_string(link.latency_seconds * 1e3) + " ms";
}

// Returns enough lanes for several windows, so that the start and the end matter little.
std::uint64_t lanes_for(const SimulatedLink& link, const World& world, const WindowLimits& limits) {
  const double full = link.bytes_per_second * link.latency_seconds / world.load().a_hop();
  return static_cast<std::uint64_t>(100 + 8 * std::min(full, allowed_lanes(world, limits)));
}

void expect_full(int ranks, const WindowLimits& limits, bool known, bool hides_queue, double slack) {
  const World one(ranks, 100);
  for (const SimulatedLink& link : all_links(hides_queue)) {
    const World world(ranks, lanes_for(link, one, limits));
    SimulatedLinks links(ranks, link, limits, known ? window_bytes(link.bytes_per_second, link.latency_seconds) : 0);
    for (int call = 0; call < (known ? 0 : 3); ++call) {
      world.run(links);
    }
    const double seconds = world.run(links);
    EXPECT_LT(seconds, slack * best_seconds(world, links, link, allowed_lanes(world, limits))) << describe(link);
    const std::uint64_t least = kLeastLanes * world.load().memory;
    EXPECT_LE(links.peak_memory(), std::max(limits.memory_bytes, least)) << describe(link);
  }
}

// The transport's tags distinguish fewer lanes than the link could carry.
TEST(Window, KeepsWithinTheLanesOfTheTransport) {
  Window window({.most_lanes = 16});
  window.set_known(std::uint64_t{1} << 40);
  const LaneLoad load{.travels = 1000, .memory = 4096, .hops = 2};
  int lanes = 0;
  for (; lanes < 100 && window.admits(load); ++lanes) {
    static_cast<void>(window.open(load, Window::Time{}));
  }
  EXPECT_EQ(lanes, 16);
}

// An owner unpacks the frames of all other ranks at once, in one lane at a time. Mutation tried: the window does not
// count that.
TEST(Window, CountsTheMemoryOfUnpackingOnce) {
  constexpr std::uint64_t kCount = 40'000;
  const Resolved packed =
      resolve({.algorithm = Algorithm::two_shot, .codec = "exact+zstd", .count = 3 * kCount}, {0, 3});
  const Lane lane = packed.schedule.make_lane(0);
  const auto frame = [&](const Instruction& instruction) {
    return packed.call.codecs.of(instruction.hop).frame_bytes(instruction.chunk.count);
  };
  std::uint64_t chunk = 0;
  const LaneLoad load = load_of(lane, frame, [&](Hop hop, std::uint64_t count) {
    chunk = std::max(chunk, packed.call.codecs.of(hop).room_bytes(count));
    return packed.call.codecs.of(hop).room_bytes(count);
  });
  EXPECT_GT(chunk, 0U);
  EXPECT_EQ(load.rooms, 2 * ((chunk + 4095) / 4096 * 4096));

  Window window({.least_lanes = 0, .memory_bytes = 10 * 4096});
  window.set_known(std::uint64_t{1} << 40);
  const LaneLoad one{.travels = 1000, .memory = 2 * 4096, .rooms = 3 * 4096, .hops = 2};
  int lanes = 0;
  for (; lanes < 100 && window.admits(one); ++lanes) {
    static_cast<void>(window.open(one, Window::Time{}));
  }
  EXPECT_EQ(lanes, 3);
}

// Mutations tried: four lanes whatever the link; no memory bound.
TEST(Window, FillsALinkThatIsKnown) { expect_full(2, {}, true, false, 1.05); }
TEST(Window, FillsALinkThatIsKnownInLargerWorlds) { expect_full(4, {}, true, false, 1.1); }

// Mutations tried: starved() does nothing; the product of a lane is not kept.
TEST(Window, GrowsUntilALinkIsFull) { expect_full(2, {}, false, false, 1.05); }
TEST(Window, GrowsUntilALinkIsFullThatHidesItsQueue) { expect_full(2, {}, false, true, 1.05); }

TEST(Window, StaysWithinLittleMemory) {
  for (const std::uint64_t memory : {0ULL, 2ULL << 20, 8ULL << 20}) {
    expect_full(2, {.memory_bytes = memory}, true, false, 1.1);
    expect_full(2, {.memory_bytes = memory}, false, true, 1.1);
  }
}

// The kernel queues accepted data at once, which delays all other senders on the link.
TEST(Window, DoesNotFillQueues) {
  for (const SimulatedLink& link : all_links(true)) {
    const World world(2, lanes_for(link, World(2, 100), {}));
    SimulatedLinks links(2, link, {});
    for (int call = 0; call < 20; ++call) {
      world.run(links);
    }
    const double needed = link.bytes_per_second * link.latency_seconds;
    const double least = kLeastLanes * world.load().a_hop();
    EXPECT_LT(static_cast<double>(links.window(0).bytes()), 3 * needed + 2 * least) << describe(link);
  }
}

// More lanes would only queue, which delays the end of a call. Mutation tried: a quarter above the measured need.
TEST(Window, KeepsTheLeastLanesOnANearLink) {
  for (const int ranks : {2, 4}) {
    const SimulatedLink link{1e9 / kBits, 20e-6, 0, true};
    const World world(ranks, 400);
    SimulatedLinks links(ranks, link, {});
    int calls = 0;
    for (int call = 0; call < 40; ++call) {
      world.run(links);
      calls += links.window(0).bytes() <= kLeastLanes * world.load().a_hop() ? 1 : 0;
    }
    EXPECT_GE(calls, 30) << ranks << " ranks; the others looked whether the link is far";
  }
}

// Native sums come in the same order on every rank, which weights would change. A copy does not travel.
TEST(Window, WhatMustComeInOrderStaysWithinTheLeastLanes) {
  const auto bytes = [](const Instruction&) { return std::uint64_t{100}; };
  const auto no_room = [](Hop, std::uint64_t) { return std::uint64_t{0}; };
  const Shape shape{.rank = 0, .world_size = 2, .weighted = true};
  const Lane weighted = native_all_reduce(shape, 1000, {}).make_lane(0);
  const Lane alone = native_all_reduce({.rank = 0, .world_size = 2}, 1000, {}).make_lane(0);
  EXPECT_EQ(load_of(weighted, bytes, no_room).travels, 0U);
  EXPECT_EQ(load_of(alone, bytes, no_room).travels, 4096U);
  Window window({});
  window.set_known(1 << 30);
  for (int lane = 0; lane < kLeastLanes; ++lane) {
    EXPECT_TRUE(window.admits({.travels = 0}));
    static_cast<void>(window.open({.travels = 0}, {}));
  }
  EXPECT_FALSE(window.admits({.travels = 0}));
  EXPECT_TRUE(window.admits({.travels = 100}));
}

TEST(Window, FollowsALinkThatGetsFarther) {
  SimulatedLink link{1e9 / kBits, 1e-3};
  const World world(2, 800);
  SimulatedLinks links(2, link, {});
  world.run(links);
  link.latency_seconds = 20e-3;
  links.change(link);
  for (int call = 0; call < 40; ++call) {
    world.run(links);
  }
  EXPECT_LT(world.run(links), 1.1 * best_seconds(world, links, link, allowed_lanes(world, {})));
}

}  // namespace
}  // namespace gradwire::test
