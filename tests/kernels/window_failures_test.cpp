// Tests kernels over windows whose ranks do not all come, or come with other calls, and the test of windows.
#include <cmath>

#include "window_support.hpp"

namespace gradwire {
namespace {

using namespace test;
using emulator::Schedule;

constexpr std::uint32_t kTwoBlocks = 2;
constexpr std::uint64_t kMillisecond = 1'000'000;

bool all_nan(const Memory& memory) {
  const std::vector<float> values = memory.to<float>();
  return !values.empty() && std::all_of(values.begin(), values.end(), [](float x) { return std::isnan(x); });
}

class WindowFailures : public ::testing::TestWithParam<Schedule> {
 protected:
  static constexpr std::uint32_t kRanks = 3;
  const WindowCall call_{.count = 5 * kTile + 77, .feedback = false};
  WindowNode node_{kRanks, kTwoBlocks, slot_bytes_for("int8", 2 * kTile)};
  std::vector<std::unique_ptr<WindowRank>> memory_ = make_ranks(call_, kRanks, 1);

  void launch(std::uint32_t rank) {
    kernels::all_reduce_windows(node_.job(call_, rank, *memory_[rank]), node_.stream(rank));
  }
  void run(emulator::Streams& streams) {
    node_.share(streams);
    streams.run(GetParam(), 3);
  }
};
INSTANTIATE_TEST_SUITE_P(Schedules, WindowFailures,
                         ::testing::Values(Schedule::ascending, Schedule::descending, Schedule::random));

// Mutations tried: no deadline; the rank that gives up tells nobody; results stay as they were.
TEST_P(WindowFailures, ARankThatNeverComesIsNamedOnAllOthers) {
  node_.timeout_ns = 3 * kMillisecond;
  {
    emulator::Streams streams;
    launch(0);
    launch(2);
    run(streams);
  }
  for (const std::uint32_t rank : {0U, 2U}) {
    EXPECT_EQ(node_.words(rank).missing, 1U + 1U) << "rank " << rank;
    EXPECT_TRUE(all_nan(memory_[rank]->input)) << "rank " << rank;
  }
  EXPECT_EQ(node_.words(1).missing, 0U);
  // From here on nothing is waited for.
  memory_ = make_ranks(call_, kRanks, 2);
  node_.timeout_ns = 0;
  emulator::Streams streams;
  launch(0);
  streams.meanwhile = [](std::uint64_t /*waits*/) { ADD_FAILURE() << "it waits"; };
  run(streams);
  EXPECT_TRUE(all_nan(memory_[0]->input));
}

TEST_P(WindowFailures, ARankThatComesTooLateLearnsThatTheOthersGaveUp) {
  node_.timeout_ns = 2 * kMillisecond;
  {
    emulator::Streams streams;
    launch(0);
    launch(2);
    run(streams);
  }
  node_.timeout_ns = 0;
  emulator::Streams streams;
  launch(1);
  run(streams);
  EXPECT_EQ(node_.words(1).missing, 1U + 1U);
  EXPECT_TRUE(all_nan(memory_[1]->input));
}

TEST_P(WindowFailures, TheHostOfARankGivesUp) {
  emulator::Streams streams;
  launch(0);
  launch(2);
  streams.meanwhile = [this](std::uint64_t waits) { node_.words(2).abort = waits > 500 ? 1 : 0; };
  run(streams);
  for (const std::uint32_t rank : {0U, 2U}) {
    EXPECT_EQ(node_.words(rank).missing, 1U + 2U) << "rank " << rank;
    EXPECT_TRUE(all_nan(memory_[rank]->input)) << "rank " << rank;
  }
}

TEST_P(WindowFailures, WithoutATimeoutItWaitsForEver) {
  emulator::Streams streams;
  launch(0);
  launch(2);
  EXPECT_THROW(run(streams), Error);
}

TEST_P(WindowFailures, AnotherCallIsABadFrame) {
  memory_[1]->words.fields.bucket += 1;
  emulator::Streams streams;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    launch(rank);
  }
  run(streams);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const kernels::DeviceStatus& status = memory_[rank]->words.status;
    EXPECT_GT(status.bad_frames, 0U) << "rank " << rank;
    EXPECT_EQ(status.first_bad, rank == 1 ? 3U : 2U) << "rank " << rank;
    EXPECT_TRUE(all_nan(memory_[rank]->input)) << "rank " << rank;
    EXPECT_EQ(node_.words(rank).missing, 0U);
  }
}

TEST_P(WindowFailures, TheTestOfWindowsCountsWhatArrived) {
  for (const bool broken : {false, true}) {
    WindowNode node(kRanks, kTwoBlocks, 5000);
    Memory elsewhere(node.window(1).bytes().size());
    emulator::Streams streams;
    node.share(streams);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      kernels::WindowPlaces places = node.places(rank);
      if (broken && rank == 2) {  // a mapping that misses the slots of rank 1
        places.window[1] = elsewhere.frame();
      }
      places.timeout_ns = 2 * kMillisecond;
      kernels::check_windows(places, node.stream(rank));
    }
    streams.run(GetParam(), 7);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      const std::uint32_t all = kernels::all_tested_words(node.places(rank).shape);
      EXPECT_EQ(node.words(rank).tested == all, !broken) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace gradwire
