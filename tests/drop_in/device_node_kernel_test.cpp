// Tests one kernel inside a node as a way of compressed calls over NCCL: ranks are threads with devices of host memory,
// the emulator runs the kernel, and times are scripted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/drop_in/node_of_ranks.hpp"

namespace gradwire::drop_in {
namespace {

constexpr int kRanks = kNodeRanks;
using test::run_ranks, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

constexpr Times kKernelIsFaster{.by_messages = 0.8e-3, .by_node_kernel = 0.3e-3};
constexpr Times kOnlyKernelIsFast{.by_messages = 3e-3, .by_node_kernel = 0.3e-3};

bool by_node_kernel(const AutoRank& rank) { return rank.place.link->host.in_node.kernels > 0; }

// Makes calls until one is compressed.
void adopt(AutoRank& rank, int most = 1000) {
  std::string became;
  while (rank.calls < most && became != "compressed") {
    became = rank.call(0);
    ASSERT_EQ(rank.code, 0);
    ASSERT_TRUE(became == "compressed" || rank.untouched(0)) << "no result may be untimed: call " << rank.calls;
  }
  ASSERT_EQ(became, "compressed") << rank.calls;
}

// Mutation tried: the job's call of a trial goes the rival's way, which is not timed then.
TEST(DeviceNodeKernel, AFasterOneIsAdoptedAfterItsTrialsAndGivesTheBytesOfMessages) {
  const std::vector<std::vector<float>> wanted = by_messages("int8");
  NodeOfRanks{.times = kKernelIsFaster}.run([&](AutoRank& rank) {
    const test::HostDevice& host = rank.place.link->host;
    EXPECT_EQ(host.in_node.openings, 0U) << "nothing is opened before a gradient comes";
    adopt(rank);
    EXPECT_EQ(host.in_node.openings, 1U);
    EXPECT_EQ(rank.place.link->port.met, 8) << "it was tried eight times, and first of all ways";
    EXPECT_EQ(host.in_node.kernels, 9U);
    EXPECT_TRUE(rank.large[0] == wanted[static_cast<std::size_t>(rank.place.rank)]);
    EXPECT_EQ(calls_by(rank.ledger, "node_kernel"), 1U);
    const std::uint64_t computed = host.computed;
    const std::uint64_t grouped = host.grouped;
    EXPECT_EQ(rank.call(0), "compressed");
    EXPECT_EQ(host.computed - computed, 2U) << "the kernel, and the one that ends the step";
    EXPECT_EQ(host.grouped - grouped, 0U);
    EXPECT_THAT(rank.nccl.said, IsEmpty());
    const std::uint64_t kernels = host.in_node.kernels;
    const std::vector<DeviceCall> group = {rank.prepare(0), rank.prepare(1)};
    EXPECT_EQ(issue(group, rank.nccl), 0);
    rank.finish(0);
    rank.finish(1);
    EXPECT_EQ(host.in_node.kernels - kernels, 2U) << "one for each call of a group";
    EXPECT_TRUE(rank.large[1] == wanted[static_cast<std::size_t>(rank.place.rank)]);
    rank.run(300);
    EXPECT_EQ(rank.call(1), "compressed") << "neither messages nor the library are faster";
  });
}

// Mutation tried: calls by messages take windows wherever there are some.
TEST(DeviceNodeKernel, ASlowerOneIsDroppedAndMessagesStay) {
  NodeOfRanks{.times = {.by_messages = 0.4e-3}}.run([](AutoRank& rank) {
    rank.clock().node_kernel = rank.place.rank == 1 ? 1.2e-3 : 0.1e-3;  // the slowest rank counts
    adopt(rank, 1500);
    EXPECT_EQ(rank.place.link->host.in_node.kernels, 8U) << "its trials alone";
    EXPECT_EQ(calls_by(rank.ledger, "node_kernel"), 0U);
    EXPECT_LT(rank.error(0), 0.1);
  });
}

TEST(DeviceNodeKernel, ResidualsAreKeptByItAndAddedWhereCallsPassAgain) {
  const NodeOfRanks node{
      .configuration = automatic("[\"sign\"]"), .times = {.by_messages = 2e-3, .by_node_kernel = 0.2e-3}, .ranks = 2};
  node.run([](AutoRank& rank) {
    const auto step = [&] {
      rank.place.reducer->note_other_call();  // the loss
      rank.call(0);
      return rank.call(1);
    };
    std::string became;
    while (rank.calls < 2000 && became != "compressed") {
      became = step();
    }
    EXPECT_EQ(became, "compressed");
    EXPECT_GT(calls_by(rank.ledger, "node_kernel"), 0U);
    EXPECT_GT(rank.place.reducer->residual_bytes(), 0U);
    rank.clock().node_kernel = 5e-3;
    while (rank.calls < 5000 && became != "passed") {
      became = step();
      EXPECT_EQ(rank.code, 0);
    }
    EXPECT_EQ(became, "passed");
    EXPECT_EQ(rank.place.reducer->residual_bytes(), 0U);
  });
}

// A rank's windows that keep the kernel from being offered, and the line on rank 0; "" for none.
struct Off {
  const char* name;
  void (*make)(test::HostWindows& node, int rank);
  const char* line;
};
void PrintTo(const Off& off, std::ostream* out) { *out << off.name; }

class DeviceNodeKernelOff : public testing::TestWithParam<Off> {};

// Mutations tried, each fails here: it is offered before the windows are opened and tested; windows are used whatever
// their test has said.
TEST_P(DeviceNodeKernelOff, ItIsOffOnAllRanks) {
  NodeOfRanks{.times = kOnlyKernelIsFast, .change = GetParam().make}.run([](AutoRank& rank) {
    rank.run(700);
    EXPECT_FALSE(by_node_kernel(rank));
    EXPECT_EQ(rank.place.link->port.met, 8) << "there is one rival, by messages";
    EXPECT_EQ(rank.place.link->host.in_node.openings, 1U) << "once";
    const std::string line = GetParam().line;
    if (rank.place.rank == 0 && !line.empty()) {
      EXPECT_THAT(rank.nccl.said, ElementsAre(HasSubstr(line)));
    } else {
      EXPECT_THAT(rank.nccl.said, IsEmpty());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Node, DeviceNodeKernelOff,
    testing::Values(
        Off{"a test that fails on one rank", [](test::HostWindows& node, int rank) { node.loses_a_word = rank == 1; },
            "rank 1 did not find in its window what others wrote to it"},
        Off{"windows that one rank cannot map",
            [](test::HostWindows& node, int rank) { node.refuses = rank == 2 ? "no peer access" : ""; },
            "rank 2: no peer access"},
        Off{"kernels that one rank cannot load",
            [](test::HostWindows& node, int rank) { node.broken = rank == 1 ? "no kernel image" : ""; },
            "rank 1: no kernel image"},
        Off{"a GPU that more ranks share than fit",
            [](test::HostWindows& node, int rank) {
              node.gpu = rank == 0 ? "" : "shared";
              node.resident = 1;
            },
            "do not fit on it at once"},
        Off{"a GPU whose blocks other windows have",
            [](test::HostWindows& node, int rank) {
              node.gpu = "shared";
              node.resident = 5;
              node.reserved = std::make_shared<std::atomic<std::uint32_t>>(rank == 1 ? 2 : 1);
            },
            "do not fit on it at once"},
        Off{"two hosts", [](test::HostWindows& node, int rank) { node.host = rank == 0 ? "a" : "b"; }, ""}));

TEST(DeviceNodeKernel, OneRankThatForbidsItKeepsAllFromIt) {
  const Configuration configuration = automatic("[\"int8\"]");
  Configuration forbids = automatic("[\"int8\"]");
  forbids.node_kernel = false;
  test::HostWindows node = new_node();
  run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    AutoRank rank(transport->rank() == 2 ? forbids : configuration, transport, node);
    rank.clock().compressed = 3e-3;
    rank.clock().node_kernel = 0.1e-3;
    rank.run(700);
    EXPECT_EQ(rank.place.link->host.in_node.openings, 0U);
    EXPECT_EQ(rank.place.link->port.met, 8);
    EXPECT_THAT(rank.nccl.said, IsEmpty());
  });
}

TEST(DeviceNodeKernel, CapturedCallsBetweenOthersPassAndCountForNothing) {
  NodeOfRanks{.times = kKernelIsFaster}.run([](AutoRank& rank) {
    std::vector<float> values(kAutoElements);
    std::uint64_t captured = 0;
    std::string became;
    while (rank.calls < 1000 && became != "compressed") {
      became = rank.call(0);
      if (rank.calls % 50 == 0 || became == "compressed") {
        const DeviceCall call =
            call_of(rank.place, {.count = kAutoElements, .captured = true}, values.data(), values.data(), rank.nccl);
        ASSERT_EQ(issue(std::vector{call}, rank.nccl), 0);
        ++captured;
      }
    }
    EXPECT_EQ(became, "compressed");
    EXPECT_EQ(rank.place.link->port.met, 8);
    EXPECT_EQ(rank.passed(Reason::captured), captured);
    EXPECT_EQ(rank.place.link->host.in_node.in_captures, 0U);
  });
}

TEST(DeviceNodeKernel, ScaledSumsOfItsClassPass) {
  NodeOfRanks{.times = kKernelIsFaster}.run([](AutoRank& rank) {
    adopt(rank);
    rank.nccl.log.clear();
    std::vector<float>& values = rank.large[0];
    const DeviceCall scaled = call_of(rank.place, {.count = kAutoElements, .factor = rank.place.rank == 0 ? 0.5 : 2.0},
                                      values.data(), values.data(), rank.nccl);
    EXPECT_EQ(issue(std::vector{scaled}, rank.nccl), 0);
    EXPECT_THAT(rank.nccl.log, ElementsAre("forward"));
    EXPECT_EQ(rank.passed(Reason::scaled), 1U);
    EXPECT_EQ(rank.call(0), "compressed");
  });
}

// Mutation tried: every call asks for windows, and these take scaled sums, too.
TEST(DeviceNodeKernel, ScaledSumsByMessagesStayThereWhileWindowsAreOpen) {
  NodeOfRanks{.times = {.by_messages = 0.4e-3, .by_node_kernel = 1.2e-3}}.run([](AutoRank& rank) {
    adopt(rank, 1500);
    const std::uint64_t kernels = rank.place.link->host.in_node.kernels;
    rank.nccl.log.clear();
    static_cast<void>(rank.prepare(0));
    std::vector<float>& values = rank.large[0];
    const double factor = rank.place.rank == 0 ? 0.5 : 2.0;
    const DeviceCall scaled =
        call_of(rank.place, {.count = kAutoElements, .factor = factor}, values.data(), values.data(), rank.nccl);
    EXPECT_EQ(issue(std::vector{scaled}, rank.nccl), 0);
    rank.finish(0);
    EXPECT_THAT(rank.nccl.log, IsEmpty()) << "it is compressed";
    EXPECT_EQ(rank.place.link->host.in_node.kernels, kernels);
    EXPECT_NEAR(values[96], 4.5 * 96 / 97 + 2.0 * 3 / 7, 0.1);
  });
}

TEST(DeviceNodeKernel, ChoicesThatNameItPassWhereItIsOff) {
  Configuration recording = automatic("[\"int8\"]");
  recording.recording = "a file";
  recording.number_in_job = 5;
  ChoicesOfJob choices;
  std::string first;
  NodeOfRanks{.configuration = recording, .times = kOnlyKernelIsFast}.run([&](AutoRank& rank) {
    std::string became;
    for (int call = 0; call < 600; ++call) {
      became += rank.call(0) == "compressed" ? 'c' : '-';
    }
    rank.place.reducer->record_choices();
    if (rank.place.rank == 0) {
      choices = rank.ledger.choices();
      first = became;
    }
  });
  ASSERT_GT(std::count(first.begin(), first.end(), 'c'), 50);
  Configuration following = automatic("[\"int8\"]");
  following.script =
      choices_from_text(choices_to_text(choices, following.policy_fingerprint()), following.policy_fingerprint());
  following.number_in_job = 5;
  for (const bool off : {false, true}) {
    NodeOfRanks node{.configuration = following, .times = {.by_messages = 1e-3, .by_node_kernel = 5e-3}};
    node.change = [=](test::HostWindows& windows, int rank) {
      windows.refuses = off && rank == 1 ? "no peer access" : "";
    };
    node.run([&](AutoRank& rank) {
      std::string became;
      for (int call = 0; call < 600; ++call) {
        became += rank.call(0) == "compressed" ? 'c' : '-';
      }
      EXPECT_EQ(rank.place.link->port.met, 0);
      EXPECT_EQ(by_node_kernel(rank), !off);
      EXPECT_EQ(became, off ? std::string(600, '-') : first);
      EXPECT_EQ(rank.passed(Reason::recorded),
                static_cast<std::uint64_t>(std::count(became.begin(), became.end(), '-')));
    });
  }
}

bool all_nan(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

// Mutation tried: calls do not ask whether a rank was missing.
TEST(DeviceNodeKernel, ARankThatDoesNotComeIsNamedAndTheCommunicatorIsOver) {
  NodeOfRanks node{.times = kOnlyKernelIsFast};
  node.configuration.timeout = std::chrono::seconds(2);
  node.run([](AutoRank& rank) {
    adopt(rank);
    EXPECT_EQ(rank.place.reducer->missing(), "");
    if (rank.place.rank == 2) {
      return;
    }
    rank.call(0);
    EXPECT_EQ(rank.code, 0) << "it was only enqueued";
    EXPECT_TRUE(all_nan(rank.large[0]));
    EXPECT_THAT(rank.place.reducer->missing(), HasSubstr("waited for rank 2"));
    EXPECT_EQ(issue(std::vector{rank.prepare(0)}, rank.nccl), HostLibrary::kFailed);
    ASSERT_FALSE(rank.nccl.said.empty());
    EXPECT_THAT(rank.nccl.said.back(), HasSubstr("waited for rank 2"));
    EXPECT_THAT(rank.place.reducer->failure(), HasSubstr("timeout 2s"));
  });
}

// Without a timeout a kernel waits as the library's would, until the job ends the communicator on one of the ranks.
TEST(DeviceNodeKernel, AnAbortOnOneRankEndsTheKernelsOfAll) {
  NodeOfRanks node{.times = kOnlyKernelIsFast};
  node.configuration.timeout.reset();
  node.run([](AutoRank& rank) {
    adopt(rank);
    if (rank.place.rank == 2) {
      return;
    }
    std::jthread watchdog;
    if (rank.place.rank == 0) {
      watchdog = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        rank.place.reducer->abort();
      });
    }
    rank.call(0);
    EXPECT_TRUE(all_nan(rank.large[0]));
    if (rank.place.rank == 1) {
      EXPECT_THAT(rank.place.reducer->missing(), HasSubstr("waited for rank 0"));
    } else {
      EXPECT_EQ(rank.place.reducer->missing(), "") << "the rank that aborts knows why";
    }
  });
}

}  // namespace
}  // namespace gradwire::drop_in
