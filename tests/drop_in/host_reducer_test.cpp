// Tests one communicator's calls on ranks that are threads: which are compressed, and with which residuals.
#include "drop_in/host_reducer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/drop_in/reducer_harness.hpp"

namespace gradwire::drop_in {
namespace {

TEST(HostReducer, Int8NeedsNoStep) {
  const Configuration configuration = configuration_of("");
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    for (int call = 0; call < 20; ++call) {
      const HostReducer::Route route = rank.reduce(kCount);
      EXPECT_TRUE(route.decision.compress);
      EXPECT_EQ(route.what.codec, "int8");
      EXPECT_EQ(route.feedback, nullptr);
      EXPECT_EQ(route.what.order.has_value(), call >= 16);
    }
    EXPECT_EQ(rank.connections, 1);
    EXPECT_EQ(rank.reducer.residual_bytes(), 0U);
  });
}

// The transport finds the nodes; the policy does not name an algorithm. Mutation tried: a reducer asks for two_shot.
TEST(HostReducer, LargeSumsOfNodesOfSeveralRanksAreHierarchical) {
  const auto algorithms_of = [](const std::vector<std::uint32_t>& nodes, const std::string& policy) {
    const Configuration configuration = configuration_of(policy);
    std::vector<std::string> algorithms;
    test::run_ranks(make_inproc_world(static_cast<int>(nodes.size()), nodes),
                    [&](const std::shared_ptr<Transport>& transport) {
                      Rank rank(configuration, transport);
                      for (int call = 0; call < 40; ++call) {
                        rank.reduce(1U << 18, "gradient");  // a name makes the step known
                      }
                      if (transport->rank() == 0) {
                        for (const auto& [what, totals] : rank.ledger.classes()) {
                          if (what.reason == Reason::none) {
                            algorithms.push_back(totals.algorithm);
                          }
                        }
                      }
                    });
    std::sort(algorithms.begin(), algorithms.end());
    algorithms.erase(std::unique(algorithms.begin(), algorithms.end()), algorithms.end());
    return algorithms;
  };
  using Texts = std::vector<std::string>;
  for (const char* codec : {"int8", "int4"}) {  // int4 leaves residuals of nodes
    const std::string policy = "[defaults]\ncodec = \"" + std::string(codec) + "\"\n";
    EXPECT_EQ(algorithms_of({0, 0, 1, 1}, policy), Texts{"hierarchical: 2 nodes of 2 ranks"}) << codec;
    EXPECT_EQ(algorithms_of({0, 0, 0, 1}, policy), Texts{"two_shot: nodes differ in size: nodes of 3 and 1 ranks"});
    EXPECT_EQ(algorithms_of({0, 0, 1, 1}, policy + "algorithm = \"two_shot\"\n"), Texts{"two_shot"}) << codec;
  }
}

TEST(HostReducer, NothingIsConnectedForWhatPasses) {
  const Configuration configuration = configuration_of("");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Rank small(configuration, transport);
    EXPECT_EQ(small.reduce(100).decision.reason, Reason::below_floor);
    Rank disabled(configuration, transport, {.disabled = true, .disabled_because = {}});
    EXPECT_EQ(disabled.reduce(kCount).decision.reason, Reason::disabled);
    Rank differing(configuration, transport, {.ranks_differ = true, .disabled_because = {}});
    EXPECT_EQ(differing.reduce(kCount).decision.reason, Reason::ranks_differ);
    Rank dry(configuration, transport, {.dry_run = true, .disabled_because = {}});
    EXPECT_TRUE(dry.reduce(kCount).decision.compress);
    Rank observing(configuration, transport, {.mode = Mode::observing, .disabled_because = {}});
    const HostReducer::Route observed = observing.reduce(kCount);
    EXPECT_EQ(observed.decision.reason, Reason::observing);
    EXPECT_TRUE(observed.lasting);
    EXPECT_EQ(
        small.connections + disabled.connections + differing.connections + dry.connections + observing.connections, 0);
  });
}

TEST(HostReducer, ResidualsWaitForTheStepAndGoWithIt) {
  const Configuration configuration = configuration_of("[defaults]\ncodec = \"int4\"\n");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    for (int call = 0; call < 16; ++call) {
      EXPECT_EQ(rank.reduce(call % 2 == 0 ? kCount : kCount + 7).decision.reason, Reason::learning);
    }
    const FeedbackBuffer* first = rank.reduce(kCount).feedback;
    const FeedbackBuffer* second = rank.reduce(kCount + 7).feedback;
    ASSERT_NE(first, nullptr);
    EXPECT_NE(first, second);
    EXPECT_EQ(rank.reduce(kCount).feedback, first);
    EXPECT_EQ(rank.reduce(kCount + 7).feedback, second);
    // There are local residuals of all elements, and the owner's for the rank's own half.
    EXPECT_GT(rank.reducer.residual_bytes(), 4 * 2 * kCount);
    EXPECT_LT(rank.reducer.residual_bytes(), 2 * 4 * 2 * (kCount + 7));

    const HostReducer::Route broken = rank.reduce(kCount + 1);
    EXPECT_EQ(broken.decision.reason, Reason::learning);
    EXPECT_EQ(rank.ledger.resets(), 1U);
    EXPECT_EQ(rank.reducer.residual_bytes(), 0U);
  });
}

TEST(HostReducer, ResidualsAreAsNarrowAsThePolicySays) {
  const auto bytes_of = [](const std::string& rest) {
    const Configuration configuration = configuration_of("[defaults]\ncodec = \"int4\"\n" + rest);
    std::atomic<std::uint64_t> bytes{0};
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Rank rank(configuration, transport);
      for (int call = 0; call < 20; ++call) {
        rank.reduce(call % 2 == 0 ? kCount : kCount + 7);
      }
      bytes += rank.reducer.residual_bytes();
    });
    return bytes.load();
  };
  EXPECT_GT(bytes_of(""), 0U);
  EXPECT_EQ(bytes_of(""), 2 * bytes_of("residuals = { dtype = \"bf16\" }\n"));
}

// Four equal layers have four residuals if their buffers distinguish them, and none if nothing does.
TEST(HostReducer, EqualLayersShareNoResidual) {
  const Configuration configuration = configuration_of("[defaults]\ncodec = \"int4\"\n");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    for (const bool staged : {false, true}) {
      Rank rank(configuration, transport);
      std::set<const FeedbackBuffer*> residuals;
      for (std::size_t call = 0; call < 40; ++call) {
        const int buffers[4] = {};
        residuals.insert(rank.route_of(kCount, &buffers[staged ? 0 : call % 4]).feedback);
      }
      residuals.erase(nullptr);
      EXPECT_EQ(residuals.size(), staged ? 0U : 4U);
    }
  });
}

TEST(HostReducer, RulesByOrderSizeAndCommunicator) {
  const Configuration configuration =
      configuration_of("[[rule]]\norder = 1\ncodec = \"exact\"\n[[rule]]\ncommunicator_size = 3\ncodec = \"bf16\"\n");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    for (int call = 0; call < 16; ++call) {
      EXPECT_EQ(rank.reduce(kCount + static_cast<std::uint64_t>(call % 2)).decision.reason, Reason::learning);
    }
    EXPECT_EQ(rank.reduce(kCount).what.codec, "int8");
    EXPECT_EQ(rank.reduce(kCount + 1).decision.reason, Reason::policy_exact);
  });
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    for (int call = 0; call < 16; ++call) {
      rank.reduce(kCount + static_cast<std::uint64_t>(call % 2));
    }
    EXPECT_EQ(rank.reduce(kCount).what.codec, "bf16");
  });
}

// Rank 1 has another name, or none: then no rule by name may choose the codec on rank 0 alone.
TEST(HostReducer, NamesCountWhereAllRanksSayThem) {
  const Configuration configuration = configuration_of("[[rule]]\nmatch = \"embed.*\"\ncodec = \"bf16\"\n");
  for (const bool agreed : {true, false}) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      const bool first = transport->rank() == 0;
      Rank rank(configuration, transport);
      const std::string_view name = first || agreed ? "embed.weight" : "";
      for (int call = 0; call < 16; ++call) {
        const bool even = call % 2 == 0;
        EXPECT_EQ(rank.reduce(kCount + (even ? 0 : 7), even ? name : "").decision.reason, Reason::learning);
      }
      const HostReducer::Route route = rank.reduce(kCount, name);
      EXPECT_EQ(route.what.codec, agreed ? "bf16" : "int8");
      EXPECT_EQ(route.what.name, agreed ? "embed.weight" : "");
    });
  }
}

TEST(HostReducer, F64OnlyWhereARuleAsksForIt) {
  const auto reason_of = [](const std::string& policy) {
    const Configuration configuration = configuration_of(policy);
    Ledger ledger;
    HostReducer reducer(configuration, ledger, {}, nullptr);
    Call call = all_reduce_of(kCount, 2);
    call.dtype = DType::f64;
    return reducer.route(call, "sum", {}).decision.reason;
  };
  EXPECT_EQ(reason_of(""), Reason::dtype);
  EXPECT_EQ(reason_of("[[rule]]\ndtype = \"f64\"\ncodec = \"int8\"\n"), Reason::none);
  EXPECT_EQ(reason_of("[[rule]]\ndtype = \"f64\"\nmin_bytes = \"1GiB\"\ncodec = \"int8\"\n"), Reason::dtype);
}

// The number of elements that the owner keeps follows from the number of nodes, not of ranks; a second hop that the
// policy names stays.
TEST(HostReducer, TheSecondHopIsTheCommunicatorsOwn) {
  for (const bool named : {false, true}) {
    const Configuration configuration = configuration_of(
        "[defaults]\nalgorithm = \"hierarchical\"\nerror_feedback = \"off\"\ncodec = \"topk(1%)+int8\"\n" +
        std::string(named ? "second_hop = \"int4\"\n" : ""));
    CallOptions options{.codec = CodecSpec::parse("topk(1%)+int8"), .algorithm = Algorithm::hierarchical};
    if (named) {
      options.second_hop = CodecSpec::parse("int4");
    }
    const std::vector<std::uint32_t> nodes{0, 0, 1, 1};
    const auto direct = make_inproc_world(4, nodes);
    run_ranks(make_inproc_world(4, nodes), [&](const std::shared_ptr<Transport>& transport) {
      Rank rank(configuration, transport);
      Communicator communicator(direct[static_cast<std::size_t>(transport->rank())]);
      std::vector<float> values(kCount);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(transport->rank()) * 101) % 1009) - 500;
      }
      std::vector<float> wanted = values;
      communicator.all_reduce(view(wanted.data(), kCount), options);
      const HostReducer::Route route = rank.route_of(kCount, values.data());
      ASSERT_TRUE(route.decision.compress);
      rank.reducer.all_reduce(route, view(values.data(), kCount), view(values.data(), kCount));
      EXPECT_EQ(values, wanted);
    });
  }
}

TEST(HostReducer, ItsNumbersAreTheTransports) {
  const Configuration configuration =
      configuration_of("[defaults]\nalgorithm = \"two_shot\"\n");  // nodes are not compared
  run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    rank.reduce(1 << 18);
    const Ledger::Classes classes = rank.ledger.classes();
    ASSERT_EQ(classes.size(), 1U);
    const CallTotals& totals = classes.begin()->second;
    EXPECT_EQ(totals.bytes_sent, transport->counters().bytes_sent);
    EXPECT_EQ(totals.bytes_dense, dense_bytes(Function::mpi_allreduce, 4 << 18, 4) / 4);
    EXPECT_GT(totals.ratio(), 3.8) << "a sample of the call is summed exactly, too";
  });
}

TEST(HostReducer, NotesNanInWhatItCompresses) {
  const Configuration configuration = configuration_of("");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    std::vector<float> values(kCount, 1);
    const auto reduce = [&] {
      rank.reducer.all_reduce(rank.route_of(kCount, values.data()), view(values.data(), kCount),
                              view(values.data(), kCount));
    };
    reduce();
    EXPECT_FALSE(rank.ledger.nonfinite());
    values[3] = transport->rank() == 1 ? NAN : 1;
    reduce();
    EXPECT_TRUE(rank.ledger.nonfinite());
  });
}

}  // namespace
}  // namespace gradwire::drop_in
