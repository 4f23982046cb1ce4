// Tests the emulator of several streams itself: a store reaches another stream when it is released, and may do so
// earlier, in any order.
#include "simt_streams.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "gradwire/error.hpp"
#include "kernels/device/simt.hpp"

namespace gradwire {
namespace {

namespace simt = kernels::simt;
using emulator::Schedule;
using emulator::Streams;

class Schedules : public ::testing::TestWithParam<Schedule> {};
INSTANTIATE_TEST_SUITE_P(Streams, Schedules,
                         ::testing::Values(Schedule::ascending, Schedule::descending, Schedule::random));

struct Words {
  alignas(16) std::array<std::uint32_t, 64> data{};
  std::uint32_t flag = 0;
};

void wait_until_set(const std::uint32_t* flag) {
  while (simt::load_acquire(flag) == 0) {
    simt::pause();
  }
}

// One stream fills the words and says so, the other one reads them. Returns how many words it found; `releases`: as it
// should be.
std::uint32_t pass_message(Schedule schedule, unsigned seed, bool releases) {
  Words words;
  std::uint32_t found = 0;
  int streams_of[2];
  Streams streams;
  streams.share(&words, sizeof words);
  emulator::launch("writes", 1, 64, &streams_of[0], [&] {
    simt::store4(&words.data[simt::thread()], 7);
    simt::sync();
    if (simt::thread() == 0) {
      releases ? simt::store_release(&words.flag, 1) : simt::store_relaxed(&words.flag, 1);
    }
    simt::sync();
    simt::sync();
  });
  emulator::launch("reads", 1, 64, &streams_of[1], [&] {
    if (simt::thread() == 0) {
      wait_until_set(&words.flag);
    }
    simt::sync();
    simt::atomic_add(&found, simt::load4(&words.data[simt::thread()]) == 7 ? 1 : 0);
  });
  streams.run(schedule, seed);
  return found;
}

TEST_P(Schedules, ReleasedStoresAreSeen) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(pass_message(GetParam(), seed, true), 64U);
  }
}

TEST(Streams, StoresThatAreNotReleasedAreMissedInSomeOrder) {
  unsigned missed = 0;
  unsigned partly = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const std::uint32_t found = pass_message(Schedule::random, seed, false);
    missed += found < 64 ? 1 : 0;
    partly += found > 0 && found < 64 ? 1 : 0;
  }
  EXPECT_GT(missed, 5U);
  EXPECT_GT(partly, 0U);  // some of them had arrived early
}

TEST_P(Schedules, ABlockSeesItsOwnStoresAtOnce) {
  Words words;
  bool seen = true;
  Streams streams;
  streams.share(&words, sizeof words);
  emulator::launch("both", 1, 64, nullptr, [&] {
    simt::store2(reinterpret_cast<std::uint16_t*>(words.data.data()) + simt::thread(), 5);
    simt::sync();
    seen = seen && simt::load4(&words.data[simt::thread() / 2]) == 0x50005U;
    seen = seen && words.data[simt::thread() / 2] != 0x50005U;  // what others would read
  });
  streams.run(GetParam() == Schedule::random ? Schedule::ascending : GetParam());
  EXPECT_TRUE(seen);
}

TEST_P(Schedules, KernelsOfAStreamRunOneAfterTheOther) {
  std::vector<int> order;
  int other = 0;
  Streams streams;
  for (int i = 0; i < 3; ++i) {
    emulator::launch("kernel", 3, 32, nullptr, [&order, i] {
      simt::pause();
      if (simt::thread() == 0) {
        order.push_back(i);
      }
    });
    emulator::launch("beside", 2, 32, &other, [] { simt::pause(); });
  }
  streams.run(GetParam(), 5);
  EXPECT_EQ(order, (std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2, 2}));
}

TEST_P(Schedules, BlocksThatWaitForEverAreAnError) {
  std::uint32_t flag = 0;
  Streams streams;
  emulator::launch("waits", 2, 32, nullptr, [&] { wait_until_set(&flag); });
  EXPECT_THROW(streams.run(GetParam()), Error);
}

TEST(Streams, AnErrorEndsAllBlocks) {
  std::uint32_t flag = 0;
  int other = 0;
  Streams streams;
  emulator::launch("waits", 1, 32, nullptr, [&] { wait_until_set(&flag); });
  emulator::launch("fails", 1, 32, &other, [] { throw Error(ErrorCode::internal, "thrown inside"); });
  EXPECT_THROW(streams.run(Schedule::ascending), Error);
  emulator::launch("runs", 1, 32, nullptr, [&] { flag = 1; });
  streams.run(Schedule::ascending);
  EXPECT_EQ(flag, 1U);
}

}  // namespace
}  // namespace gradwire
