// Tests tiers as a way of codec = "auto" over NCCL: ranks are threads with devices of host memory, their library sums
// inside nodes in an order of its own, and times are scripted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/drop_in/device_auto_rank.hpp"

namespace gradwire::drop_in {
namespace {

constexpr int kRanks = 4;
using test::run_ranks, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Pair;

// Without windows, of which a rank would say that there are none.
Configuration without_windows(Configuration configuration) {
  configuration.node_kernel = false;
  return configuration;
}

/// Two nodes of two ranks, unless `change` changes them for a rank.
struct Nodes {
  Configuration configuration = without_windows(automatic("[\"int8\"]"));
  double by_messages = 2e-3;  // seconds of a call; NCCL's takes 1 ms
  double by_tiers = 0.4e-3;
  std::function<void(HostLink& link, int rank)> change = [](HostLink&, int) {};

  void run(const std::function<void(AutoRank& rank)>& body) const {
    run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
      AutoRank rank(configuration, transport);
      HostLink& link = *rank.place.link;
      link.host.let_sum_in_nodes();
      link.has_own = true;
      link.on_host = transport->rank() < 2 ? "a" : "b";
      change(link, transport->rank());
      rank.clock().compressed = by_messages;
      rank.clock().tiers = by_tiers;
      body(rank);
    });
  }
};

Configuration with_policy(const std::string& lines, const std::string& defaults = "") {
  Configuration configuration = without_windows(automatic("[\"int8\"]"));
  configuration.planner =
      plan::CallPlanner(Policy::parse("version = 1\n" + lines +
                                      "[defaults]\ncodec = \"auto\"\nroles = \"all\"\nallow = [\"int8\"]\n" + defaults),
                        plan::AutoFeedback::where_allowed);
  return configuration;
}

std::uint64_t calls_in_tiers(const Ledger& ledger) {
  std::uint64_t calls = 0;
  for (const auto& [what, totals] : ledger.classes()) {
    calls += totals.algorithm == "hierarchical" ? totals.compressed_calls : 0;
  }
  return calls;
}

// Makes calls until one is compressed.
void adopt(AutoRank& rank, int most = 1500) {
  std::string became;
  while (rank.calls < most && became != "compressed") {
    became = rank.call(0);
    ASSERT_EQ(rank.code, 0);
    ASSERT_TRUE(became == "compressed" || rank.untouched(0)) << "no result may be untimed: call " << rank.calls;
  }
  ASSERT_EQ(became, "compressed") << rank.calls;
}

// Mutations tried: calls in tiers are made by messages; the communicator is not split.
TEST(DeviceTiers, AFasterWayIsAdoptedAfterItsTrialsAndAllRanksGetTheSameBits) {
  std::vector<std::vector<float>> results(kRanks);
  Nodes{}.run([&](AutoRank& rank) {
    const HostLink& link = *rank.place.link;
    EXPECT_THAT(link.own.parts, IsEmpty()) << "nothing is split before a gradient comes";
    adopt(rank);
    const int number = rank.place.rank;
    EXPECT_THAT(link.own.parts, ElementsAre(Pair(static_cast<std::uint32_t>(number / 2), number % 2)));
    EXPECT_EQ(link.own.uses_split, true);
    EXPECT_EQ(link.port.met, 16) << "both ways were tried, by messages and in tiers";
    EXPECT_EQ(link.host.node_sums, 9U);
    EXPECT_EQ(calls_in_tiers(rank.ledger), 1U);
    EXPECT_LT(rank.error(0), 0.1);
    EXPECT_EQ(rank.place.reducer->residual_bytes(), 0U);
    EXPECT_THAT(rank.nccl.said, IsEmpty());
    results[static_cast<std::size_t>(number)] = rank.large[0];
    const std::uint64_t sums = link.host.node_sums;
    EXPECT_EQ(issue(std::vector{rank.prepare(0), rank.prepare(1)}, rank.nccl), 0);
    rank.finish(0);
    rank.finish(1);
    EXPECT_EQ(link.host.node_sums - sums, 2U) << "one for each call of a group";
    EXPECT_TRUE(rank.large[1] == results[static_cast<std::size_t>(number)]);
  });
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_TRUE(results[static_cast<std::size_t>(rank)] == results[0]) << rank;
  }
}

// By the model a 25 MiB bucket in tiers takes 1 / .91 of NCCL's time where each GPU has an InfiniBand card.
TEST(DeviceTiers, ASlowerWayIsTriedAndNcclsCallStays) {
  Nodes{.by_messages = 1e-3 / 0.68, .by_tiers = 1e-3 / 0.91}.run([](AutoRank& rank) {
    constexpr int kCalls = 2500;
    for (int call = 0; call < kCalls; ++call) {
      rank.call(0);
      ASSERT_TRUE(rank.untouched(0)) << "call " << call << " was compressed";
    }
    EXPECT_GE(rank.place.link->host.node_sums, 8U) << "it was measured";
    EXPECT_LE(rank.place.link->port.met, 0.03 * kCalls);
    EXPECT_EQ(calls_in_tiers(rank.ledger), 0U);
  });
}

TEST(DeviceTiers, AWayThatBecomesSlowerIsDropped) {
  Nodes{}.run([](AutoRank& rank) {
    adopt(rank);
    rank.clock().tiers = 1.5e-3;
    std::string became;
    while (rank.calls < 6000 && became != "passed") {
      became = rank.call(0);
      ASSERT_EQ(rank.code, 0);
    }
    EXPECT_EQ(became, "passed");
  });
}

struct Off {
  const char* name;
  void (*change)(HostLink& link, int rank);
  Configuration (*configuration)();
  const char* line;  // on rank 0; "" for none
};
void PrintTo(const Off& off, std::ostream* out) { *out << off.name; }

class DeviceTiersOff : public testing::TestWithParam<Off> {};

// Mutation tried: whether other ranks have joined their node is not asked.
TEST_P(DeviceTiersOff, ThereAreMessagesAlone) {
  Nodes{.configuration = GetParam().configuration(), .by_tiers = 0.1e-3, .change = GetParam().change}.run(
      [](AutoRank& rank) {
        rank.run(700);
        EXPECT_EQ(rank.place.link->host.node_sums, 0U);
        EXPECT_EQ(rank.place.link->port.met, 8) << "there is one rival, by messages";
        const std::string line = GetParam().line;
        if (!line.empty()) {
          EXPECT_EQ(rank.place.link->own.uses_split, false) << "no rank keeps a communicator that others lack";
        }
        if (rank.place.rank == 0 && !line.empty()) {
          EXPECT_THAT(rank.nccl.said, ElementsAre(HasSubstr(line)));
        } else {
          EXPECT_THAT(rank.nccl.said, IsEmpty());
        }
      });
}

constexpr auto kNoChange = [](HostLink&, int) {};
INSTANTIATE_TEST_SUITE_P(
    Nodes, DeviceTiersOff,
    testing::Values(
        Off{"one host", [](HostLink& link, int) { link.on_host = "a"; }, [] { return with_policy(""); }, ""},
        Off{"a host for each rank", [](HostLink& link, int rank) { link.on_host = std::to_string(rank); },
            [] { return with_policy(""); }, ""},
        Off{"nodes of three ranks and one", [](HostLink& link, int rank) { link.on_host = rank == 3 ? "b" : "a"; },
            [] { return with_policy(""); }, ""},
        Off{"a rank whose communicator cannot be split", [](HostLink& link, int rank) { link.own.splits = rank != 2; },
            [] { return with_policy(""); }, "in 2 nodes of 2 ranks: some rank has no communicator of its node"},
        Off{"a policy that names two_shot", kNoChange, [] { return with_policy("", "algorithm = \"two_shot\"\n"); },
            ""},
        Off{"a codec inside nodes that NCCL does not know", kNoChange,
            [] { return with_policy("[tier.intra]\ncodec = \"int8\"\n"); }, ""}));

// A rank whose library cannot sum inside nodes. Mutation tried: each rank asks its own library alone.
TEST(DeviceTiers, OneRankWithoutSumsKeepsAllFromIt) {
  const Configuration configuration = with_policy("");
  run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(configuration, transport);
    rank.place.link->has_own = true;
    rank.place.link->on_host = transport->rank() < 2 ? "a" : "b";
    if (transport->rank() != 1) {
      rank.place.link->host.let_sum_in_nodes();
    }
    rank.clock().tiers = 0.1e-3;
    rank.run(700);
    EXPECT_EQ(rank.place.link->host.node_sums, 0U);
    EXPECT_EQ(rank.place.link->port.met, 8);
    EXPECT_THAT(rank.place.link->own.parts, IsEmpty()) << "no rank waits in a split that others leave out";
  });
}

TEST(DeviceTiers, ANamedCodecDoesNotTakeIt) {
  Nodes{.configuration = configuration_of("[defaults]\ncodec = \"int8\"\n")}.run([](AutoRank& rank) {
    EXPECT_EQ(rank.call(0), "compressed");
    EXPECT_EQ(rank.place.link->host.node_sums, 0U);
    EXPECT_THAT(rank.place.link->own.parts, IsEmpty());
  });
}

TEST(DeviceTiers, APolicySaysWhatANodeIsAndInWhatNcclSums) {
  Nodes{.configuration = with_policy("[tier]\nranks_per_node = 2\n[tier.intra]\ncodec = \"bf16\"\n",
                                     "algorithm = \"hierarchical\"\n"),
        .change = [](HostLink& link, int) { link.on_host = "a"; }}
      .run([](AutoRank& rank) {
        adopt(rank);
        EXPECT_EQ(calls_in_tiers(rank.ledger), 1U);
        EXPECT_LT(rank.error(0), 0.1);
      });
}

TEST(DeviceTiers, ScaledSumsHaveThemToo) {
  Nodes{}.run([](AutoRank& rank) {
    adopt(rank);
    static_cast<void>(rank.prepare(0));
    std::vector<float>& values = rank.large[0];
    const double factor = rank.place.rank == 0 ? 0.5 : 2.0;
    const std::uint64_t sums = rank.place.link->host.node_sums;
    const DeviceCall scaled =
        call_of(rank.place, {.count = kAutoElements, .factor = factor}, values.data(), values.data(), rank.nccl);
    EXPECT_EQ(issue(std::vector{scaled}, rank.nccl), 0);
    rank.finish(0);
    EXPECT_EQ(rank.place.link->host.node_sums - sums, 1U);
    EXPECT_NEAR(values[96], 6.5 * 96 / 97 + 2.0 * 6 / 7, 0.1);
  });
}

// Ways 1 and 2 are the codecs by messages, 3 and 4 those of the kernel inside a node, which is not offered here, and 5
// is int8 in tiers. Mutations tried: tiers take the numbers of the kernel; residuals are folded in tiers.
TEST(DeviceTiers, AScriptNamesThemAndResidualsOfOtherWaysAreAddedFirst) {
  const std::string codecs = "[\"int8\", \"sign\"]";
  Configuration recording = without_windows(automatic(codecs));
  recording.recording = "a file";
  ChoicesOfJob choices;
  // Makes a step of two calls: 'p' where both pass, 'm' where both are compressed by messages, 't' in tiers.
  const auto step = [](AutoRank& rank) {
    rank.place.reducer->note_other_call();  // the loss
    const std::uint64_t sums = rank.place.link->host.node_sums;
    const std::string first = rank.call(0);
    EXPECT_EQ(rank.call(1), first);
    EXPECT_EQ(rank.code, 0);
    const std::uint64_t made = rank.place.link->host.node_sums - sums;
    return first == "passed" && made == 0 ? 'p' : made == 0 ? 'm' : made == 2 ? 't' : '?';
  };
  Nodes{.configuration = recording}.run([&](AutoRank& rank) {
    for (int i = 0; i < 30; ++i) {
      step(rank);
    }
    rank.place.reducer->record_choices();
    if (rank.place.rank == 0) {
      choices = rank.ledger.choices();
    }
  });
  ASSERT_EQ(choices.size(), 1U);
  ASSERT_EQ(choices.begin()->second.size(), 1U);
  choices.begin()->second.begin()->second = {
      {.call = 0, .way = 0}, {.call = 80, .way = 2}, {.call = 120, .way = 5}, {.call = 160, .way = 3}};
  Configuration following = without_windows(automatic(codecs));
  following.script =
      choices_from_text(choices_to_text(choices, following.policy_fingerprint()), following.policy_fingerprint());
  Nodes{.configuration = following}.run([&](AutoRank& rank) {
    std::string became;
    for (int i = 0; i < 110; ++i) {
      became += step(rank);
      const auto by_messages = std::count(became.begin(), became.end(), 'm');
      const std::uint64_t residuals = rank.place.reducer->residual_bytes();
      EXPECT_EQ(residuals > 0, by_messages > 0 && by_messages <= 20) << became;
    }
    EXPECT_THAT(became, ::testing::MatchesRegex("p+" + std::string(21, 'm') + std::string(19, 't') + "p+"))
        << "the first step of int8 adds residuals by messages, and the kernel inside a node is not offered";
  });
}

}  // namespace
}  // namespace gradwire::drop_in
