// Tests which rank is named if no message arrives.
#include "transport/silence.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/ranks.hpp"

namespace gradwire::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Silence, NamesWhoIsGoneAndWhoWaitsForItToo) {
  const PeerState here{.answers = true};
  const PeerState waits_for_1{.answers = true, .waits_for = {1}};
  const PeerState gone;
  EXPECT_EQ(describe_wait({0}, {waits_for_1, gone, here}),
            "waiting for rank 0: rank 1 is silent; rank 0 waits for it too; is it alive, and does it make the same "
            "calls?");
  EXPECT_EQ(describe_wait({1}, {waits_for_1, gone, here}),
            "waiting for rank 1: rank 1 is silent; is it alive, and does it make the same calls?");
  EXPECT_EQ(
      describe_wait({3, 0, 0}, {waits_for_1, gone, here, gone}),
      "waiting for ranks 0, 3: ranks 1, 3 are silent; rank 0 waits for them too; are they alive, and do they make "
      "the same calls?");
  EXPECT_EQ(describe_wait({0}, {{.answers = true, .waits_for = {2}}, here, here}),
            "waiting for rank 0: every rank answers; rank 0 waits for rank 2; do all make the same calls?");
  EXPECT_EQ(describe_wait({}, {here, gone}),
            "waiting for all ranks: rank 1 is silent; is it alive, and does it make "
            "the same calls?");
  EXPECT_EQ(describe_wait({2}, {}), "waiting for rank 2: is it alive, and does it make the same calls?");
}

TEST(Silence, RanksInOneProcessAnswerWhileTheyLook) {
  std::atomic<int> asked = 0;
  test::run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    std::byte nothing{};
    Operation receive;
    if (transport->rank() == 0) {  // waits for rank 1, and looks for it
      transport->post_receive(receive, 1, 5, {&nothing, 1});
      while (asked == 0) {
        transport->progress(std::chrono::hours(1) / 3600);
      }
    } else if (transport->rank() == 2) {
      const std::vector<PeerState> peers = transport->ask(std::chrono::milliseconds(300));
      ++asked;
      ASSERT_EQ(peers.size(), 3U);
      EXPECT_TRUE(peers[0].answers);
      EXPECT_THAT(peers[0].waits_for, ElementsAre(1));
      EXPECT_FALSE(peers[1].answers);
      EXPECT_TRUE(peers[2].answers);
      EXPECT_THAT(peers[2].waits_for, IsEmpty());
    }
    while (asked == 0) {  // rank 1 does something else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    transport->cancel(receive);
  });
}

}  // namespace
}  // namespace gradwire::transport
