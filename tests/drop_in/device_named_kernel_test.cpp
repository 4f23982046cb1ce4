// Tests one kernel inside a node under a named codec over NCCL: calls take turns between it and messages, and then go
// the way that is faster on the slowest rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/drop_in/node_of_ranks.hpp"

namespace gradwire::drop_in {
namespace {

using ::testing::HasSubstr, ::testing::IsEmpty;

constexpr int kSettled = 160;  // calls after which the times of the first ones count

Configuration named(const std::string& codec = "int8") {
  return configuration_of("[defaults]\ncodec = \"" + codec + "\"\n");
}

// Makes calls with one buffer, each of which must be compressed, and returns how: m by messages, k by the kernel.
std::string ways(AutoRank& rank, int calls) {
  std::string ways;
  for (int i = 0; i < calls; ++i) {
    const std::uint64_t kernels = rank.place.link->host.in_node.kernels;
    EXPECT_EQ(rank.call(0), "compressed");
    EXPECT_EQ(rank.code, 0);
    ways += rank.place.link->host.in_node.kernels > kernels ? 'k' : 'm';
  }
  return ways;
}

std::string turns() {
  std::string turns;
  for (std::uint64_t i = 0; i < choice::EqualWays::kUntimed + choice::EqualWays::kTurns; ++i) {
    turns += i % 2 == 0 ? 'm' : 'k';
  }
  return turns;
}

TEST(DeviceNamedKernel, TheFasterWayIsTakenOnAllRanksAndItsBytesAreThoseOfMessages) {
  const std::vector<std::vector<float>> wanted = by_messages("int8");
  for (const bool faster : {true, false}) {
    std::vector<std::string> all(kNodeRanks);
    NodeOfRanks{.configuration = named(), .times = {.by_messages = 1e-3, .by_node_kernel = 0.3e-3}}.run(
        [&](AutoRank& rank) {
          const auto number = static_cast<std::size_t>(rank.place.rank);
          if (!faster && number == 1) {
            rank.clock().node_kernel = 1.2e-3;  // the slowest rank counts
          }
          rank.clock().behind = 3 * number;  // ranks learn their times at different calls
          for (int i = 0; i < kSettled; ++i) {
            all[number] += ways(rank, 1);
            ASSERT_TRUE(rank.large[0] == wanted[number]) << "call " << i << " " << all[number].back();
          }
          EXPECT_EQ(rank.place.link->host.in_node.openings, 1U);
          EXPECT_EQ(rank.place.link->port.met, static_cast<int>(choice::EqualWays::kTurns));
          EXPECT_GT(calls_by(rank.ledger, faster ? "node_kernel" : "two_shot"), kSettled / 2)
              << "as the latest was made";
          EXPECT_THAT(rank.nccl.said, IsEmpty());
        });
    EXPECT_EQ(all[0], all[1]);
    EXPECT_EQ(all[0], all[2]);
    EXPECT_EQ(all[0].substr(0, turns().size()), turns());
    EXPECT_EQ(all[0].back(), faster ? 'k' : 'm') << all[0];
    EXPECT_EQ(all[0][turns().size()], 'm') << "no way is taken before the ranks have compared it";
  }
}

TEST(DeviceNamedKernel, ARankWithoutTimesKeepsAllFromIt) {
  NodeOfRanks{.configuration = named(), .times = {.by_messages = 1e-3, .by_node_kernel = 0.1e-3}}.run(
      [](AutoRank& rank) {
        rank.clock().knows = rank.place.rank != 2;
        const std::string made = ways(rank, 700);
        EXPECT_EQ(made, turns() + std::string(made.size() - turns().size(), 'm'));
        EXPECT_EQ(rank.clock().live, 0) << "all marks are given back";
        EXPECT_LE(rank.place.link->port.begun, 10) << "the ranks stop asking";
      });
}

// Residuals belong to the call's place, whichever way it goes.
TEST(DeviceNamedKernel, TurnsKeepTheSameResiduals) {
  std::vector<std::vector<std::vector<float>>> results(2, std::vector<std::vector<float>>(kNodeRanks));
  for (const bool in_node : {false, true}) {
    NodeOfRanks node{.configuration = named("sign"), .times = {.by_messages = 1e-3, .by_node_kernel = 0.3e-3}};
    node.configuration.node_kernel = in_node;
    node.run([&](AutoRank& rank) {
      std::vector<float>& all = results[in_node ? 1 : 0][static_cast<std::size_t>(rank.place.rank)];
      for (int step = 0; step < 90; ++step) {
        rank.place.reducer->note_other_call();  // the loss
        for (const std::size_t which : {0U, 1U}) {
          rank.call(which);
          all.insert(all.end(), {rank.large[which][7], rank.large[which][96], rank.large[which].back()});
        }
      }
      EXPECT_GT(rank.place.reducer->residual_bytes(), 0U);
      EXPECT_EQ(calls_by(rank.ledger, "node_kernel") > 20, in_node);
    });
  }
  EXPECT_TRUE(results[0] == results[1]);
}

TEST(DeviceNamedKernel, CallsOfAGroupAndScaledSumsGoByMessages) {
  NodeOfRanks{.configuration = named(), .times = {.by_messages = 1e-3, .by_node_kernel = 0.3e-3}}.run(
      [](AutoRank& rank) {
        EXPECT_EQ(ways(rank, kSettled).back(), 'k');
        const std::uint64_t kernels = rank.place.link->host.in_node.kernels;
        const std::vector<DeviceCall> group = {rank.prepare(0), rank.prepare(1)};
        EXPECT_EQ(issue(group, rank.nccl), 0);
        rank.finish(0);
        rank.finish(1);
        EXPECT_LT(rank.error(1), 0.1);
        static_cast<void>(rank.prepare(0));
        std::vector<float>& values = rank.large[0];
        const double factor = rank.place.rank == 0 ? 0.5 : 2.0;
        const DeviceCall scaled =
            call_of(rank.place, {.count = kAutoElements, .factor = factor}, values.data(), values.data(), rank.nccl);
        EXPECT_EQ(issue(std::vector{scaled}, rank.nccl), 0);
        rank.finish(0);
        EXPECT_NEAR(values[96], 4.5 * 96 / 97 + 2.0 * 3 / 7, 0.1);
        EXPECT_EQ(rank.place.link->host.in_node.kernels, kernels);
        EXPECT_EQ(ways(rank, 1), "k");
      });
}

TEST(DeviceNamedKernel, ACapturedCallGoesTheWayThatWasFound) {
  for (const bool faster : {true, false}) {
    NodeOfRanks{.configuration = named(), .times = {.by_messages = 1e-3, .by_node_kernel = faster ? 0.3e-3 : 3e-3}}.run(
        [&](AutoRank& rank) {
          const auto capture = [&] {
            const std::uint64_t kernels = rank.place.link->host.in_node.kernels;
            static_cast<void>(rank.prepare(0));
            std::vector<float>& values = rank.large[0];
            const DeviceCall call = call_of(rank.place, {.count = kAutoElements, .captured = true}, values.data(),
                                            values.data(), rank.nccl);
            EXPECT_EQ(issue(std::vector{call}, rank.nccl), 0);
            rank.finish(0);
            EXPECT_LT(rank.error(0), 0.1);
            return rank.place.link->host.in_node.kernels > kernels;
          };
          ways(rank, 4);  // the latest of these was made by the kernel
          EXPECT_FALSE(capture()) << "nothing has timed it yet";
          ways(rank, kSettled);
          const int met = rank.place.link->port.met;
          EXPECT_EQ(capture(), faster);
          EXPECT_EQ(rank.place.link->port.met, met);
        });
  }
}

TEST(DeviceNamedKernel, WhereItIsOffAllCallsGoByMessages) {
  for (const auto& [forbidden, asked] : {std::pair(false, false), std::pair(false, true), std::pair(true, false)}) {
    NodeOfRanks node{.configuration = named()};
    node.configuration.node_kernel = !forbidden;
    node.configuration.node_kernel_asked = asked;
    node.change = [](test::HostWindows& windows, int rank) { windows.loses_a_word = rank == 1; };
    node.run([&](AutoRank& rank) {
      EXPECT_EQ(ways(rank, kSettled), std::string(kSettled, 'm'));
      EXPECT_EQ(rank.place.link->host.in_node.openings, forbidden ? 0U : 1U);
      EXPECT_EQ(rank.place.link->port.met, 0);
      if (rank.place.rank == 0 && asked) {
        EXPECT_THAT(rank.nccl.said, testing::ElementsAre(HasSubstr("rank 1 did not find in its window")));
      } else {
        EXPECT_THAT(rank.nccl.said, IsEmpty());
      }
    });
  }
}

}  // namespace
}  // namespace gradwire::drop_in
