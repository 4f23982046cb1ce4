// Tests the emulator itself: exchanges between lanes, and that threads which wait at different places are an error
// instead of a hang.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "gradwire/error.hpp"
#include "kernels/device/simt.hpp"

namespace gradwire {
namespace {

namespace simt = kernels::simt;

// Runs `body` once in each thread of `blocks` blocks of 64.
void run(const std::function<void()>& body, std::uint32_t blocks = 1) { emulator::run("test", blocks, 64, body); }

std::string error_of(const std::function<void()>& body) {
  try {
    run(body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class Orders : public ::testing::TestWithParam<emulator::Order> {
 protected:
  void SetUp() override { emulator::set_order(GetParam()); }
  void TearDown() override { emulator::set_order(emulator::Order::ascending); }
};
INSTANTIATE_TEST_SUITE_P(Emulator, Orders, ::testing::Values(emulator::Order::ascending, emulator::Order::descending));

TEST_P(Orders, LanesExchangeWhatTheyHold) {
  std::vector<std::uint32_t> xors(64);
  std::vector<std::uint32_t> ups(64);
  std::vector<std::uint32_t> firsts(64);
  std::vector<std::uint32_t> maxima(64);
  std::vector<std::int32_t> sums(64);
  std::vector<std::uint32_t> ballots(64);
  run([&] {
    const std::uint32_t t = simt::thread();
    xors[t] = simt::shuffle_xor(t, 5);
    ups[t] = simt::shuffle_up(t, 3);
    firsts[t] = simt::shuffle(t, 7);
    maxima[t] = simt::warp_max(t * 3);
    sums[t] = simt::warp_sum(-static_cast<std::int32_t>(t));
    ballots[t] = simt::ballot(t % 3 == 0);
  });
  for (std::uint32_t t = 0; t < 64; ++t) {
    const std::uint32_t warp = t / 32 * 32;
    EXPECT_EQ(xors[t], t ^ 5U);
    EXPECT_EQ(ups[t], t - warp < 3 ? t : t - 3);
    EXPECT_EQ(firsts[t], warp + 7);
    EXPECT_EQ(maxima[t], (warp + 31) * 3);
    EXPECT_EQ(sums[t], warp == 0 ? -496 : -1520);
    EXPECT_EQ(ballots[t] >> (t % 32) & 1U, t % 3 == 0 ? 1U : 0U);
  }
}

TEST_P(Orders, ABarrierIsMetByAll) {
  std::vector<int> marks(64);
  std::vector<int> seen(64);
  std::vector<char> votes(64);
  run([&] {
    const std::uint32_t t = simt::thread();
    for (int round = 1; round <= 3; ++round) {
      marks[t] = round;
      simt::sync();
      seen[t] += std::accumulate(marks.begin(), marks.end(), 0) == 64 * round ? 1 : 0;
      simt::sync();
    }
    votes[t] = simt::sync_or(t == 40) && !simt::sync_or(false) ? 1 : 0;
  });
  EXPECT_EQ(seen, std::vector<int>(64, 3));
  EXPECT_EQ(votes, std::vector<char>(64, 1));
}

TEST(Emulator, RunsEveryBlock) {
  std::vector<std::uint32_t> blocks;
  run(
      [&] {
        if (simt::thread() == 0) {
          EXPECT_EQ(simt::blocks(), 3U);
          blocks.push_back(simt::block());
        }
      },
      3);
  EXPECT_EQ(blocks, (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(Emulator, NamesABarrierThatNotAllReach) {
  const std::string error = error_of([] {
    if (simt::thread() < 50) {
      simt::sync();
    }
  });
  EXPECT_NE(error.find("not all threads come to sync: 0 to 49: sync; 50 to 63: returned"), std::string::npos) << error;
}

TEST(Emulator, NamesAShuffleThatSomeLanesSkip) {
  const std::string error = error_of([] {
    if (simt::lane() != 3) {
      static_cast<void>(simt::ballot(true));
    }
    simt::sync();
  });
  EXPECT_NE(error.find("not all threads come to"), std::string::npos) << error;
  EXPECT_NE(error.find("3 to 3: sync"), std::string::npos) << error;
}

TEST(Emulator, NamesOperationsThatDiffer) {
  const std::string error = error_of([] {
    if (simt::lane() < 16) {
      static_cast<void>(simt::ballot(true));
    } else {
      static_cast<void>(simt::warp_max(1));
    }
  });
  EXPECT_NE(error.find("is at warp_max while others are at ballot"), std::string::npos) << error;
}

TEST(Emulator, NamesAMisalignedAccess) {
  alignas(16) std::byte bytes[32]{};
  const std::string error = error_of([&] { static_cast<void>(simt::load16(bytes + 4)); });
  EXPECT_NE(error.find("kernel test, block 0, thread 0: an access of 16 bytes"), std::string::npos) << error;
}

TEST(Emulator, RunsOnAfterAnError) {
  EXPECT_NE(error_of([] { throw Error(ErrorCode::internal, "thrown inside"); }), "");
  int threads = 0;
  run([&] { ++threads; });
  EXPECT_EQ(threads, 64);
}

}  // namespace
}  // namespace gradwire
