// Tests the all-reduce by one kernel over windows: its results, frames and residuals are those of the separate kernels,
// whatever the order in which blocks run and stores arrive.
#include "window_support.hpp"

namespace gradwire {
namespace {

using namespace test;
using emulator::Schedule;

constexpr std::uint32_t kBlocks = 3;

// Launches the calls of all ranks one after the other on each rank's stream, runs all streams at once, and compares
// with the separate kernels.
void compare(std::uint32_t ranks, const std::vector<WindowCall>& calls, Schedule schedule, unsigned seed = 0,
             std::uint32_t epoch = 0) {
  SCOPED_TRACE(calls[0].text(ranks) + ", schedule " + std::to_string(static_cast<int>(schedule)) + ", seed " +
               std::to_string(seed));
  std::uint32_t slot_bytes = 0;
  for (const WindowCall& call : calls) {
    const std::uint32_t tiles = (kernels::tiles_of(call.count) + ranks - 1) / ranks;
    slot_bytes = std::max(slot_bytes, slot_bytes_for(call.codec, tiles * kTile));
  }
  WindowNode node(ranks, kBlocks, slot_bytes, epoch);
  std::vector<std::vector<std::unique_ptr<WindowRank>>> got;
  std::vector<std::vector<std::unique_ptr<WindowRank>>> wanted;
  SeparateFrames frames;
  for (std::uint32_t i = 0; i < calls.size(); ++i) {
    got.push_back(make_ranks(calls[i], ranks, i));
    wanted.push_back(make_ranks(calls[i], ranks, i));
    frames = run_separately(node, calls[i], wanted[i]);
  }
  emulator::Streams streams;
  node.share(streams);
  for (std::uint32_t i = 0; i < calls.size(); ++i) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      kernels::all_reduce_windows(node.job(calls[i], rank, *got[i][rank]), node.stream(rank));
    }
  }
  streams.run(schedule, seed);
  for (std::uint32_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE("call " + std::to_string(i) + ": " + calls[i].text(ranks));
    expect_equal(got[i], wanted[i]);
  }
  if (calls.size() == 1) {
    expect_frames(node, calls[0], frames, streams);
  }
}

// Mutations tried: no wait for flags, none of the two meetings; flags without release, or ahead of headers; three
// barriers are dropped; blocks of two ranks have different tiles; NaN is not noted, or noted for good.
TEST(Windows, BytesAreThoseOfSeparateKernels) {
  unsigned at = 0;
  for (const std::uint32_t ranks : {2U, 3U, 4U, 8U}) {
    for (const std::uint32_t count : {1U, 300U, kTile, ranks * kTile, 5 * kTile + 77, 3 * ranks * kTile - 5}) {
      ++at;
      compare(ranks,
              {{.count = count,
                .dtype = std::array{DType::f32, DType::bf16, DType::f32, DType::f16}[at % 4],
                .feedback = at % 3 != 0,
                .divisor = at % 2 == 0 ? 1.0 : ranks,
                .kind = at % 2 == 0 ? Kind::special : Kind::plain,
                .in_place = at % 5 != 0,
                .in_pieces = at % 4 == 1}},
              std::array{Schedule::ascending, Schedule::descending, Schedule::random}[at % 3], at);
      if (HasFailure()) {
        return;
      }
    }
  }
}

TEST(Windows, EveryCodecThatHasAKernel) {
  unsigned at = 0;
  unsigned codecs = 0;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    const std::string name(entry.name);
    if (!kernels::has_window_kernel({.id = entry.id})) {
      EXPECT_FALSE(entry.lossy) << name;
      continue;
    }
    ++codecs;
    for (const std::uint32_t ranks : {2U, 4U}) {
      ++at;
      compare(
          ranks,
          {{.codec = name.c_str(), .count = 2 * ranks * kTile + 2345, .kind = Kind::special, .in_pieces = ranks == 4}},
          Schedule::random, at);
    }
  }
  EXPECT_EQ(codecs, 7U);
  EXPECT_FALSE(kernels::has_window_kernel({.id = 4, .k = 41}));
}

TEST(Windows, AChunkOfEachShard) {
  for (const std::uint32_t begin : {0U, 1U, 2U}) {
    compare(4, {{.count = 9 * kTile + 300, .begin_tile = begin, .most_tiles = 1}}, Schedule::random, begin);
  }
}

// A rank may be a call ahead of another one, and blocks of a rank a step. Mutations tried: epochs do not advance.
TEST(Windows, CallsOneAfterTheOther) {
  const std::vector<WindowCall> calls{{.count = 7 * kTile + 5},
                                      {.codec = "int4", .count = 5 * kTile},
                                      {.count = 600, .feedback = false},
                                      {.codec = "bf16", .count = 4 * kTile + 1000},
                                      {.count = 9 * kTile, .kind = Kind::special},
                                      {.codec = "sign", .count = 3 * kTile + 9}};
  for (unsigned seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    compare(seed % 2 == 0 ? 3 : 2, calls, Schedule::random, seed);
  }
  compare(3, calls, Schedule::ascending);
  compare(3, calls, Schedule::descending);
}

// Mutations tried: flags are compared as unsigned numbers.
TEST(Windows, EpochsWrapAround) {
  const std::vector<WindowCall> calls(4, {.count = 3 * kTile + 5});
  for (const std::uint32_t epoch : {0xFFFFFFFDU, 0x7FFFFFFDU}) {
    compare(3, calls, Schedule::random, 5, epoch);
    compare(3, calls, Schedule::ascending, 5, epoch);
  }
}

}  // namespace
}  // namespace gradwire
