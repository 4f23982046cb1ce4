// Tests codec = "auto" on devices: a reducer's calls, trials and exchanges over host memory, with scripted times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "drop_in/device_guess.hpp"
#include "tests/drop_in/device_auto_rank.hpp"

namespace gradwire::drop_in {
namespace {

using test::run_ranks;
using ::testing::HasSubstr;

// Mutations tried, each fails here: the rival works on the job's buffer; the copy is not released.
TEST(DeviceAuto, AFasterCodecIsAdoptedAndASlowerOneDropped) {
  const Configuration configuration = automatic("[\"int8\"]");
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(configuration, transport);
    rank.clock().compressed = 0.4e-3;
    rank.clock().behind = transport->rank() == 1 ? 20 : 0;
    EXPECT_EQ(rank.run(318), (std::map<std::string, int>{{"passed", 318}}));
    const auto for_trials = [&, left = rank.place.link->host.memory_left()] {  // beside the memory of messages
      return left - rank.place.link->host.memory_left() - rank.place.link->host.arena().footprint().held_bytes;
    };
    const std::size_t before = for_trials();
    int trials = 0;
    std::string became;
    while (rank.calls < 700 && became != "compressed") {
      became = rank.call(0);
      if (became == "library" || became == "library in place") {
        ++trials;
        EXPECT_EQ(became, "library in place");
        EXPECT_TRUE(rank.untouched(0)) << "the job gets the library's sum";
      } else if (became == "passed") {
        EXPECT_TRUE(rank.untouched(0));
      }
    }
    EXPECT_EQ(became, "compressed") << rank.calls;
    EXPECT_EQ(trials, 8);
    EXPECT_EQ(rank.place.link->port.met, 8);
    EXPECT_EQ(for_trials(), before) << "the memory of trials is given back";
    EXPECT_LT(rank.error(0), 0.1);
    EXPECT_GT(rank.error(0), 0);
    EXPECT_EQ(rank.passed(Reason::measuring), static_cast<std::uint64_t>(rank.calls - 1));

    std::map<std::string, int> later = rank.run(400);
    EXPECT_EQ(later["compressed"], 392);
    EXPECT_EQ(later["library"] + later["library in place"], 8) << "the library is the rival, on the copy";
    EXPECT_EQ(later["library"], 4) << "in every second trial it comes first";
    EXPECT_LT(rank.error(1), 0.1) << "the job gets the sum of the way in use";

    rank.clock().compressed = 3e-3;
    rank.run(1500);
    EXPECT_EQ(rank.call(0), "passed");
    EXPECT_GT(rank.passed(Reason::no_faster), 200U);
    EXPECT_LE(rank.clock().live, 100) << "marks are dropped";
  });
}

TEST(DeviceAuto, ASlowerCodecChangesNoByte) {
  const Configuration configuration = automatic("[\"bf16\", \"int8\"]");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(configuration, transport);
    rank.clock().compressed = transport->rank() == 0 ? 0.5e-3 : 1.1e-3;  // slower on one of the ranks
    for (int i = 0; i < 900; ++i) {
      rank.call(0);
      ASSERT_TRUE(rank.untouched(0)) << "call " << i;
      ASSERT_EQ(rank.code, 0);
    }
    EXPECT_GE(rank.place.link->port.met, 16) << "both codecs were tried";
    EXPECT_EQ(rank.passed(Reason::none), 0U);
  });
}

TEST(DeviceAuto, TimesThatOneRankNeverLearnsDecideNothing) {
  const Configuration configuration = automatic("[\"int8\"]");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(configuration, transport);
    rank.clock().compressed = 0.1e-3;
    rank.clock().knows = transport->rank() == 0;
    rank.run(1000);
    EXPECT_EQ(rank.call(1), "passed");
    EXPECT_TRUE(rank.untouched(1));
  });
}

// Mutation tried: residuals are not added where calls pass again.
TEST(DeviceAuto, ResidualsAreAddedByOneExactCallWhereCallsPassAgain) {
  const Configuration configuration = automatic("[\"int4\"]");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(configuration, transport);
    const auto step = [&] {
      rank.place.reducer->note_other_call();  // the loss
      return std::array{rank.call(0), rank.call(1)};
    };
    rank.clock().compressed = 0.2e-3;
    std::array<std::string, 2> became;
    while (rank.calls < 2000 && became[1] != "compressed") {
      became = step();
    }
    EXPECT_EQ(became[1], "compressed");
    EXPECT_GT(rank.passed(Reason::learning), 0U) << "residuals need a place";
    EXPECT_GT(rank.place.reducer->residual_bytes(), 0U);

    // From here on the errors of all results add up to what the residuals hold.
    rank.clock().compressed = 5e-3;
    std::map<std::string, int> last;
    while (rank.calls < 5000 && became[1] != "passed") {
      became = step();
      EXPECT_EQ(rank.code, 0);
    }
    EXPECT_EQ(became[1], "passed");
    EXPECT_EQ(rank.place.reducer->residual_bytes(), 0U);
    std::uint64_t exact = 0;
    for (const auto& [what, totals] : rank.ledger.classes()) {
      exact += what.codec == "exact" ? totals.compressed_calls : 0;
    }
    EXPECT_EQ(exact, 2U) << "one for each call of the step";
  });
}

// Calls are faster with the codec, but the rest of the step is slower by more. Mutation tried: a step is the shortest
// period of the calls, which here is one bucket.
TEST(DeviceAuto, AStepOfEqualBucketsIsJudgedAsAWhole) {
  const Configuration configuration = automatic("[\"int8\"]");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(configuration, transport);
    rank.clock().compressed = 0.7e-3;
    int compressed = 0;
    std::string became;
    for (int step = 0; step < 300; ++step) {
      for (std::size_t bucket = 0; bucket < 4; ++bucket) {
        became = rank.call(bucket);
        compressed += became == "compressed" ? 1 : 0;
      }
      rank.clock().pass(became == "compressed" ? 8e-3 : 3e-3);
    }
    EXPECT_GT(compressed, 50) << "it was adopted";
    EXPECT_LT(compressed, 400);
    EXPECT_EQ(became, "passed") << "and dropped";
  });
}

// With one fast link a codec of many bits is no help, by the model; over a slow one fewer bits come first.
TEST(DeviceAuto, TheModelKnowsWhatALinkAllows) {
  const auto guess = [](const std::string& link, const std::string& allow, bool in_node = false) {
    const Policy policy =
        Policy::parse("version = 1\n" + link + "[defaults]\ncodec = \"auto\"\nallow = " + allow + "\n");
    const plan::CallPlanner planner(policy, plan::AutoFeedback::where_allowed);
    const plan::CallPlan plan = planner.resolve({.count = 1 << 20, .communicator_size = 8});
    const ChoiceClass what{.function = Function::nccl_all_reduce, .dtype = DType::f32, .size = 22};
    const DeviceOffers offers{.node_kernel = in_node};
    return guess_ways(policy, device_ways(plan, DType::f32, offers), offers, what, 4 << 20, 8);
  };
  EXPECT_EQ(guess("", "[\"int8\"]"), (std::vector<double>{1, 1})) << "the link is not known";
  const std::vector<double> slow = guess("[link]\nbandwidth = \"1Gbit/s\"\n", "[\"bf16\", \"int8\", \"int4\"]");
  ASSERT_EQ(slow.size(), 4U);
  EXPECT_EQ(slow[0], 1);
  EXPECT_NEAR(slow[1], 0.5, 0.05);
  EXPECT_NEAR(slow[2], 0.26, 0.03);
  EXPECT_LT(slow[3], slow[2]);
  const std::vector<double> fast = guess("[link]\nbandwidth = \"3000Gbit/s\"\n", "[\"int8\"]");
  EXPECT_GT(fast.at(1), 1.2);
  const std::vector<double> node = guess("", "[\"int8\", \"topk(1%)+int8\"]", true);
  ASSERT_EQ(node.size(), 4U) << "topk has no kernel";
  EXPECT_EQ(node[1], 1) << "the link is not known";
  EXPECT_GT(node[3], 0.2);
  EXPECT_LT(node[3], 0.5) << "the kernel is tried first";
}

// Four nodes of two cards that share a link. Mutation tried: what is not offered counts as NCCL's call.
TEST(DeviceAuto, TheModelKnowsWhatTiersSend) {
  const auto guess = [](const std::string& link) {
    const Policy policy =
        Policy::parse("version = 1\n" + link + "[defaults]\ncodec = \"auto\"\nallow = [\"int8\", \"sign\"]\n");
    const plan::CallPlanner planner(policy, plan::AutoFeedback::where_allowed);
    const plan::CallPlan plan = planner.resolve({.count = 1 << 24, .communicator_size = 8});
    const ChoiceClass what{.function = Function::nccl_all_reduce, .dtype = DType::f32, .size = 26};
    DeviceOffers offers;
    offers.tiers = std::make_shared<const exchange::Tiers>(exchange::Tiers::in_rows(2, 8));
    const std::vector<DeviceWay> ways = device_ways(plan, DType::f32, offers);
    EXPECT_EQ(ways.size(), 5U) << "the codec with error feedback has no tiers";
    EXPECT_EQ(ways[2].method, DeviceMethod::node_kernel);
    EXPECT_FALSE(ways[2].offered);
    EXPECT_EQ(ways[4].method, DeviceMethod::tiers);
    EXPECT_EQ(ways[4].stage.codec, CodecSpec("int8"));
    return guess_ways(policy, ways, offers, what, 64 << 20, 8);
  };
  EXPECT_EQ(guess(""), (std::vector<double>{1, 1, 1, INFINITY, INFINITY, 1})) << "the link is not known";
  const std::vector<double> slow = guess("[link]\nbandwidth = \"10Gbit/s\"\n");
  ASSERT_EQ(slow.size(), 6U);
  EXPECT_NEAR(slow[1], 0.43, 0.03) << "a rank sends 6/4 of its frames out of the node, NCCL's rings 7/4 of values";
  EXPECT_LT(slow[5], 0.3);
  EXPECT_EQ(slow[3], INFINITY);
}

// Mutation tried: rank 0's choices do not reach the others.
TEST(DeviceAuto, AllRanksFollowTheChoicesThatRankZeroHas) {
  Configuration recording = automatic("[\"int8\"]");
  recording.recording = "a file";
  recording.number_in_job = 5;
  std::vector<std::string> first(2);
  ChoicesOfJob choices;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(recording, transport);
    rank.clock().compressed = 0.3e-3;
    for (int call = 0; call < 700; ++call) {
      const std::string became = rank.call(static_cast<std::size_t>(call % 2));
      first[static_cast<std::size_t>(rank.place.rank)] += became == "compressed" ? 'c' : '-';
    }
    rank.place.reducer->record_choices();
    if (rank.place.rank == 0) {
      choices = rank.ledger.choices();
    } else {
      EXPECT_TRUE(rank.ledger.choices().empty());
    }
  });
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices.begin()->first.first, 5U);
  EXPECT_EQ(choices.begin()->first.size, 2U);
  EXPECT_GT(std::count(first[0].begin(), first[0].end(), 'c'), 100);
  Configuration following = automatic("[\"int8\"]");
  following.script = choices;
  following.number_in_job = 5;
  const Configuration without = automatic("[\"int8\"]");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(transport->rank() == 0 ? following : without, transport);
    rank.clock().compressed = 3e-3;
    std::string now;
    for (int call = 0; call < 700; ++call) {
      now += rank.call(static_cast<std::size_t>(call % 2)) == "compressed" ? 'c' : '-';
    }
    EXPECT_EQ(rank.place.link->port.met, 0) << "nothing is compared";
    EXPECT_EQ(rank.place.link->port.begun, 0);
    EXPECT_EQ(now, first[0]) << "call by call";
    EXPECT_GT(rank.passed(Reason::recorded), 300U);
  });
}

TEST(DeviceAuto, GroupsTakeTheSameWaysOnAllRanks) {
  const Configuration configuration = automatic("[\"int8\"]");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(configuration, transport);
    rank.clock().compressed = 0.3e-3;
    int groups_with_both = 0;
    for (int i = 0; i < 500; ++i) {
      rank.nccl.log.clear();
      const auto met = static_cast<std::uint64_t>(rank.place.link->port.met);
      const std::vector<DeviceCall> group = {rank.prepare(0), rank.prepare(1)};
      ASSERT_EQ(issue(group, rank.nccl), 0);
      rank.finish(0);
      rank.finish(1);
      groups_with_both += static_cast<std::uint64_t>(rank.place.link->port.met) == met + 2 ? 1 : 0;
    }
    EXPECT_GE(groups_with_both, 3) << "both calls of a group are trials";
    EXPECT_EQ(rank.nccl.log, std::vector<std::string>{}) << "both are compressed at the end";
    EXPECT_LT(rank.error(0), 0.1);
    EXPECT_LT(rank.error(1), 0.1);
  });
}

TEST(DeviceAuto, ARankWithoutMemoryForTheCopyKeepsAllFromTrials) {
  const Configuration configuration = automatic("[\"int8\"]");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(configuration, transport);
    rank.clock().compressed = 0.3e-3;
    if (transport->rank() == 1) {
      rank.place.link->host.set_memory_left(0);
    }
    rank.run(600);
    EXPECT_EQ(rank.place.link->port.met, 0);
    EXPECT_GT(rank.passed(Reason::untried), 100U);
  });
}

}  // namespace
}  // namespace gradwire::drop_in
