// One communicator's calls on ranks that are threads: what is compressed when, with which residuals.
#include "drop_in/member.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "gradwire/policy.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::drop_in {
namespace {

using test::run_ranks;

constexpr std::uint64_t kCount = 20000;

Configuration configuration_of(const std::string& policy) {
  Configuration configuration;
  configuration.planner = plan::CallPlanner(Policy::parse("version = 1\n" + policy));
  return configuration;
}

Call all_reduce_of(std::uint64_t count, int world) {
  return {.function = Function::mpi_allreduce,
          .dtype = DType::f32,
          .reduction = Reduction::sum,
          .count = count,
          .world_size = world};
}

// A rank of the drop-in, over a transport of this process.
struct Rank {
  Rank(const Configuration& configuration, const std::shared_ptr<Transport>& transport, const Agreement& agreement = {})
      : world(transport->world_size()), member(configuration, ledger, agreement, [this, transport] {
          ++connections;
          return transport;
        }) {}

  Member::Route route_of(std::uint64_t count, const void* buffer) {
    return member.route(all_reduce_of(count, world), "sum", {.buffer = buffer});
  }

  // One all-reduce; what became of it.
  Member::Route reduce(std::uint64_t count, std::string_view name = {}) {
    // Tensors of different sizes are different buffers.
    Member::Route route = member.route(all_reduce_of(count, world), "sum",
                                       {.name = name, .buffer = reinterpret_cast<const void*>(count)});
    if (route.decision.compress && !member.dry_run()) {
      std::vector<float> values(count, 0.3F);
      values[0] = 1;
      member.all_reduce(route, view(values.data(), count), view(values.data(), count));
      EXPECT_NEAR(values[1], 0.3 * world, 0.3 * world);
    } else {
      member.count_passed(route, 4 * count, 0);
    }
    return route;
  }

  int world;
  int connections = 0;
  Ledger ledger;
  Member member;
};

TEST(Member, Int8NeedsNoStep) {
  const Configuration configuration = configuration_of("");
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    for (int call = 0; call < 20; ++call) {
      const Member::Route route = rank.reduce(kCount);
      EXPECT_TRUE(route.decision.compress);
      EXPECT_EQ(route.what.codec, "int8");
      EXPECT_EQ(route.feedback, nullptr);
      EXPECT_EQ(route.what.order.has_value(), call >= 16);
    }
    EXPECT_EQ(rank.connections, 1);
    EXPECT_EQ(rank.member.residual_bytes(), 0U);
  });
}

// By the nodes that the transport finds, without a word of the policy. Mutation tried: a member asks for two_shot.
TEST(Member, LargeSumsOfNodesOfSeveralRanksAreHierarchical) {
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
  for (const char* codec : {"int8", "int4"}) {  // int4 with residuals of nodes
    const std::string policy = "[defaults]\ncodec = \"" + std::string(codec) + "\"\n";
    EXPECT_EQ(algorithms_of({0, 0, 1, 1}, policy), Texts{"hierarchical: 2 nodes of 2 ranks"}) << codec;
    EXPECT_EQ(algorithms_of({0, 0, 0, 1}, policy), Texts{"two_shot: nodes differ in size: nodes of 3 and 1 ranks"});
    EXPECT_EQ(algorithms_of({0, 0, 1, 1}, policy + "algorithm = \"two_shot\"\n"), Texts{"two_shot"}) << codec;
  }
}

TEST(Member, NothingIsConnectedForWhatPasses) {
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
    const Member::Route observed = observing.reduce(kCount);
    EXPECT_EQ(observed.decision.reason, Reason::observing);
    EXPECT_TRUE(observed.lasting);
    EXPECT_EQ(
        small.connections + disabled.connections + differing.connections + dry.connections + observing.connections, 0);
  });
}

TEST(Member, ResidualsWaitForTheStepAndGoWithIt) {
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
    // Local residuals of all elements, and those of the rank's own half.
    EXPECT_GT(rank.member.residual_bytes(), 4 * 2 * kCount);
    EXPECT_LT(rank.member.residual_bytes(), 2 * 4 * 2 * (kCount + 7));

    const Member::Route broken = rank.reduce(kCount + 1);
    EXPECT_EQ(broken.decision.reason, Reason::learning);
    EXPECT_EQ(rank.ledger.resets(), 1U);
    EXPECT_EQ(rank.member.residual_bytes(), 0U);
  });
}

// Four equal layers are four residuals where their buffers tell them apart, and none where nothing does.
// Where the caller knows the order nothing is to be found out. Mutation tried: a changed call keeps its place.
TEST(Member, KnownPlacesNeedNoSteps) {
  const Configuration configuration = configuration_of("[defaults]\ncodec = \"int4\"\n");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    std::vector<float> values(2 * kCount, 0.3F);
    const auto reduce = [&](std::uint64_t count, std::uint64_t order) {
      const Member::Route route = rank.member.route(all_reduce_of(count, rank.world), "sum", {.order = order});
      EXPECT_TRUE(route.decision.compress) << text(route.decision.reason);
      EXPECT_EQ(route.what.order, order);
      EXPECT_NE(route.feedback, nullptr);
      rank.member.all_reduce(route, view(values.data(), count), view(values.data(), count));
      return route.feedback;
    };
    const auto* const first = reduce(kCount, 0);
    const auto* const second = reduce(kCount, 3);  // those between were below the floor
    EXPECT_NE(first, second);
    EXPECT_EQ(reduce(kCount, 0), first);
    EXPECT_EQ(reduce(kCount, 3), second);
    EXPECT_EQ(rank.ledger.resets(), 0U);
    reduce(2 * kCount, 0);  // buckets were made anew
    EXPECT_EQ(rank.ledger.resets(), 1U);
    reduce(kCount, 3);
    EXPECT_EQ(rank.ledger.resets(), 1U);
  });
}

// Two models on one communicator, each of which counts its own calls: places and residuals are its own, too. Mutation
// tried: places are found by order alone; then each call of one model adds what the other's left out.
TEST(Member, CallersThatCountApartShareNoResidual) {
  const Configuration configuration = configuration_of("[defaults]\ncodec = \"int4\"\n");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    std::vector<float> values(2 * kCount, 0.3F);
    const auto reduce = [&](std::uint64_t count, std::uint32_t sequence, std::uint64_t order) {
      const Member::Route route =
          rank.member.route(all_reduce_of(count, rank.world), "sum", {.order = order, .sequence = sequence});
      EXPECT_TRUE(route.decision.compress) << text(route.decision.reason);
      rank.member.all_reduce(route, view(values.data(), count), view(values.data(), count));
      return route.feedback;
    };
    std::set<const FeedbackBuffer*> residuals;
    for (int step = 0; step < 3; ++step) {
      for (std::uint32_t model = 0; model < 2; ++model) {
        residuals.insert(reduce(kCount, model, 0));
        residuals.insert(reduce(kCount * (1 + model), model, 1));
      }
    }
    EXPECT_EQ(residuals.size(), 4U);
    EXPECT_EQ(rank.ledger.resets(), 0U) << "models of other sizes take turns";
    reduce(2 * kCount, 0, 0);  // one model's buckets are made anew
    EXPECT_EQ(rank.ledger.resets(), 1U);
    EXPECT_NE(reduce(kCount, 0, 1), nullptr);
    EXPECT_NE(reduce(kCount, 0, 1), reduce(kCount, 1, 0));
    EXPECT_EQ(rank.ledger.resets(), 1U);
  });
}

TEST(Member, EqualLayersShareNoResidual) {
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

TEST(Member, RulesByOrderSizeAndCommunicator) {
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
TEST(Member, NamesCountWhereAllRanksSayThem) {
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
      const Member::Route route = rank.reduce(kCount, name);
      EXPECT_EQ(route.what.codec, agreed ? "bf16" : "int8");
      EXPECT_EQ(route.what.name, agreed ? "embed.weight" : "");
    });
  }
}

TEST(Member, F64OnlyWhereARuleAsksForIt) {
  const auto reason_of = [](const std::string& policy) {
    const Configuration configuration = configuration_of(policy);
    Ledger ledger;
    Member member(configuration, ledger, {}, nullptr);
    Call call = all_reduce_of(kCount, 2);
    call.dtype = DType::f64;
    return member.route(call, "sum", {}).decision.reason;
  };
  EXPECT_EQ(reason_of(""), Reason::dtype);
  EXPECT_EQ(reason_of("[[rule]]\ndtype = \"f64\"\ncodec = \"int8\"\n"), Reason::none);
  EXPECT_EQ(reason_of("[[rule]]\ndtype = \"f64\"\nmin_bytes = \"1GiB\"\ncodec = \"int8\"\n"), Reason::dtype);
}

// What the owner keeps follows from the nodes that encoded sums come from, not from the ranks; a second hop that the
// policy names stays.
TEST(Member, TheSecondHopIsTheCommunicatorsOwn) {
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
      const Member::Route route = rank.route_of(kCount, values.data());
      ASSERT_TRUE(route.decision.compress);
      rank.member.all_reduce(route, view(values.data(), kCount), view(values.data(), kCount));
      EXPECT_EQ(values, wanted);
    });
  }
}

TEST(Member, ItsNumbersAreTheTransports) {
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

// What a job's rank does in a call whose library is this test: sums in rank order, over a Communicator of its own.
struct Job {
  Job(const Configuration& configuration, const std::shared_ptr<Transport>& ours,
      const std::shared_ptr<Transport>& library)
      : rank(configuration, ours), sums(library) {}

  // One call in place. `library_seconds`, `fails`: of the library's own call.
  Member::Route reduce(std::vector<float>& values, double library_seconds = 1e-3, bool fails = false) {
    const std::uint64_t count = values.size();
    Member::Route route =
        rank.member.route(all_reduce_of(count, rank.world), "sum", {.name = "gradient", .buffer = values.data()});
    const View view{values.data(), count, DType::f32};
    if (route.decision.compress) {
      rank.member.all_reduce(route, view, view);
      return route;
    }
    if (route.turn.trial) {
      ++trials;
      rank.member.begin_trial(route, view, true);
    }
    if (fails) {
      rank.member.drop_trial();
      return route;
    }
    sums.all_reduce(view, {.codec = CodecSpec::exact()});
    if (route.turn.trial) {
      rank.member.end_trial(library_seconds, view);
    }
    rank.member.count_passed(route, 4 * count, library_seconds);
    return route;
  }

  Rank rank;
  Communicator sums;
  int trials = 0;
};

template <typename Body>
void run_jobs(int world, const Configuration& configuration, const Body& body) {
  const auto library = make_inproc_world(world);
  run_ranks(world, [&](const std::shared_ptr<Transport>& ours) {
    Job job(configuration, ours, library[static_cast<std::size_t>(ours->rank())]);
    body(job, ours->rank());
  });
}

// Values that int8 rounds.
std::vector<float> values_of(int rank, std::uint64_t count = kCount) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(rank) * 101) % 1009) / 1009 - 0.5F;
  }
  return values;
}

std::vector<float> exact_sum(int world, std::uint64_t count = kCount) {
  std::vector<float> sum(count, 0);
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<float> values = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += values[i];
    }
  }
  return sum;
}

const char* const kAutomatic = "[defaults]\ncodec = \"auto\"\nallow = [\"int8\"]\n";

// Mutation tried: ours is made into the job's buffer.
TEST(Member, TrialsChangeNoBitAndAtMostElevenAreMade) {
  const Configuration configuration = configuration_of(kAutomatic);
  run_jobs(3, configuration, [&](Job& job, int rank) {
    const std::vector<float> wanted = exact_sum(3);
    for (int call = 0; call < 200; ++call) {
      std::vector<float> values = values_of(rank);
      const Member::Route route = job.reduce(values, 1e-12);  // ours is never faster
      EXPECT_FALSE(route.decision.compress);
      EXPECT_EQ(values, wanted) << call;
    }
    EXPECT_GT(job.trials, 0);
    EXPECT_LE(job.trials, 11);
    for (const auto& [what, totals] : job.rank.ledger.classes()) {
      EXPECT_EQ(totals.lossy_calls, 0U);
    }
    EXPECT_TRUE(job.rank.member.take_lines().empty());
  });
}

TEST(Member, WhatIsChosenIsTimedBothWaysAndToldOnce) {
  const Configuration configuration = configuration_of(kAutomatic);
  run_jobs(2, configuration, [&](Job& job, int rank) {
    const std::vector<float> wanted = exact_sum(2);
    std::uint64_t compressed = 0;
    std::vector<std::string> lines;
    for (int call = 0; call < 60; ++call) {
      std::vector<float> values = values_of(rank);
      const Member::Route route = job.reduce(values, 10);
      if (route.turn.timed) {
        job.rank.member.measured(1e-3);
      }
      compressed += route.decision.compress ? 1 : 0;
      EXPECT_EQ(values == wanted, !route.decision.compress);
      for (std::string& line : job.rank.member.take_lines()) {
        lines.push_back(std::move(line));
      }
    }
    EXPECT_EQ(compressed, 59U) << "the first trial took seconds, and was clear";
    for (const auto& [what, totals] : job.rank.ledger.classes()) {
      if (what.codec == "int8") {
        ASSERT_TRUE(totals.measured);
        EXPECT_EQ(totals.measured->passed, 10);
        EXPECT_EQ(totals.lossy_calls, compressed);
        ASSERT_TRUE(totals.largest_error);
        EXPECT_GT(*totals.largest_error, 1e-4);
        EXPECT_LT(*totals.largest_error, 2e-2);
      }
    }
    ASSERT_EQ(lines.size(), rank == 0 ? 1U : 0U);
    if (rank == 0) {
      EXPECT_NE(lines[0].find("MPI_Allreduce of 78.12KiB of f32 by int8, relative error 0.00"), std::string::npos)
          << lines[0];
    }
  });
}

// One rank of three cannot take a copy: no rank tries, and all pass.
TEST(Member, OneRankWithoutMemoryForCopiesKeepsAllFromTrying) {
  const Configuration configuration = configuration_of(kAutomatic);
  run_jobs(3, configuration, [&](Job& job, int rank) {
    if (rank == 1) {
      job.rank.member.limit_copies(kCount);
    }
    const std::vector<float> wanted = exact_sum(3);
    for (int call = 0; call < 30; ++call) {
      std::vector<float> values = values_of(rank);
      EXPECT_EQ(job.reduce(values).decision.reason, Reason::untried);
      EXPECT_EQ(values, wanted);
    }
    EXPECT_EQ(job.trials, 0);
  });
}

// The library's own call fails on one rank, so no rank may wait in ours for it.
TEST(Member, ATrialThatFailsOnOneRankLetsAllPassFromThenOn) {
  for (const int failing : {0, 1}) {  // of the first trial, or of the second, where ours comes first
    const Configuration configuration = configuration_of(kAutomatic);
    run_ranks(3, [&](const std::shared_ptr<Transport>& ours) {
      const bool mine = ours->rank() == 2;
      Rank rank(configuration, ours);
      std::vector<std::string> lines;
      for (int call = 0; call < 5; ++call) {
        std::vector<float> values = values_of(ours->rank());
        const ConstView view{values.data(), kCount, DType::f32};
        const Member::Route route = rank.member.route(all_reduce_of(kCount, 3), "sum", {});
        // The other ranks may hear of it while they are still about to begin.
        const bool tries = call < failing || (call == failing && (mine || route.turn.trial));
        EXPECT_EQ(route.turn.trial, tries) << call;
        EXPECT_EQ(route.decision.reason, tries ? Reason::measuring : Reason::aside) << call;
        if (route.turn.trial) {
          rank.member.begin_trial(route, view, true);
          mine&& call == failing ? rank.member.drop_trial() : rank.member.end_trial(1e-3, view);
        }
        for (std::string& line : rank.member.take_lines()) {
          lines.push_back(std::move(line));
        }
      }
      EXPECT_EQ(lines.size(), ours->rank() == 0 ? 1U : 0U);
    });
  }
}

// Every rank gets its segment of the library's sum; a reduce has its sum at the root alone.
TEST(Member, ReduceScatterAndReduceAreTriedToo) {
  const Configuration configuration = configuration_of(kAutomatic);
  run_ranks(3, [&](const std::shared_ptr<Transport>& ours) {
    Rank rank(configuration, ours);
    const std::vector<std::uint64_t> counts{0, kCount - 7, 7};
    const std::uint64_t own = counts[static_cast<std::size_t>(ours->rank())];
    for (const Function function : {Function::mpi_reduce_scatter, Function::mpi_reduce}) {
      const bool scatters = function == Function::mpi_reduce_scatter;
      Call call = all_reduce_of(kCount, 3);
      call.function = function;
      for (int i = 0; i < 40; ++i) {
        const std::vector<float> values = values_of(ours->rank());
        const ConstView input{values.data(), kCount, DType::f32};
        const Member::Route route = rank.member.route(call, "sum", {});
        if (route.turn.trial) {
          scatters ? rank.member.begin_trial(route, input, false, counts)
                   : rank.member.begin_trial(route, input, false);
          const std::uint64_t has = scatters ? own : ours->rank() == 0 ? kCount : 0;
          rank.member.end_trial(1e-12, {values.data(), has, DType::f32});
        }
        EXPECT_FALSE(route.decision.compress);
      }
      EXPECT_EQ(rank.member.route(call, "sum", {}).decision.reason, Reason::no_faster);
    }
  });
}

TEST(Member, ABoundIsHeldFromTheFirstCallOn) {
  // int8 errs by about 0.002 here; sign by much.
  struct Row {
    const char* policy;
    bool passes;
  };
  for (const Row& row : {Row{"[defaults]\nmax_error = 0.01\n", false}, Row{"[defaults]\nmax_error = 1e-5\n", true},
                         Row{"[defaults]\ncodec = \"auto\"\nallow = [\"int8\"]\nmax_error = 1e-5\n", true}}) {
    const Configuration configuration = configuration_of(row.policy);
    run_jobs(3, configuration, [&](Job& job, int rank) {
      const std::vector<float> wanted = exact_sum(3);
      std::vector<std::string> lines;
      for (int call = 0; call < 200; ++call) {
        std::vector<float> values = values_of(rank);
        const Member::Route route = job.reduce(values, 10);
        EXPECT_EQ(route.turn.trial, call == 0) << call;
        EXPECT_EQ(values == wanted, call == 0 || row.passes) << call;
        if (row.passes && call > 0) {
          EXPECT_EQ(route.decision.reason, Reason::inaccurate);
        }
        for (std::string& line : job.rank.member.take_lines()) {
          lines.push_back(std::move(line));
        }
      }
      ASSERT_EQ(lines.size(), rank == 0 ? 1U : 0U);
      if (rank == 0) {
        EXPECT_EQ(lines[0].find("above max_error 1e-05") != std::string::npos, row.passes) << lines[0];
      }
    });
  }
}

// Values that cancel: each rank's own error is small beside its values, and all of the sum. Only the ranks' exact sum
// says so. Mutation tried: a rank's own values are compared.
TEST(Member, ABoundIsHeldLaterWhereSumsCancel) {
  const Configuration configuration = configuration_of("[defaults]\nmax_error = \"5%\"\n");
  for (const bool scatters : {false, true}) {
    run_jobs(2, configuration, [&](Job& job, int rank) {
      const auto call_of = [&](bool cancels) {
        std::vector<float> values = values_of(0);
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = cancels && rank == 1 ? -values[i] + 1e-6F * static_cast<float>(i % 7) : values[i];
        }
        if (!scatters) {
          return job.reduce(values, 10);
        }
        Call call = all_reduce_of(kCount, 2);
        call.function = Function::mpi_reduce_scatter;
        const std::vector<std::uint64_t> counts{kCount / 2, kCount / 2};
        Member::Route route = job.rank.member.route(call, "sum", {});
        const ConstView input{values.data(), kCount, DType::f32};
        std::vector<float> result(kCount / 2);
        if (route.turn.trial) {
          job.rank.member.begin_trial(route, input, false, counts);
          for (std::size_t i = 0; i < result.size(); ++i) {
            result[i] = 2 * values[i + static_cast<std::size_t>(rank) * result.size()];
          }
          job.rank.member.end_trial(10, {result.data(), result.size(), DType::f32});
        } else if (route.decision.compress) {
          job.rank.member.reduce_scatter(route, input, {result.data(), result.size(), DType::f32}, counts);
        }
        return route;
      };
      EXPECT_TRUE(call_of(false).turn.trial);
      EXPECT_TRUE(call_of(false).decision.compress);
      int compressed = 0;
      while (call_of(true).decision.compress && compressed < 100) {
        ++compressed;
      }
      EXPECT_LE(compressed, 64);
      EXPECT_GE(compressed, 60);
      EXPECT_EQ(call_of(false).decision.reason, Reason::inaccurate);
    });
  }
}

// Small values beside an outlier of each block decode to 0, and would for ever.
TEST(Member, SmallValuesThatAreLostAreToldOnceWithTheRuleThatMendsIt) {
  for (const char* policy : {"", "[defaults]\nerror_feedback = \"on\"\n"}) {
    const bool mended = *policy != '\0';
    const Configuration configuration = configuration_of(policy);
    run_jobs(2, configuration, [&](Job& job, int rank) {
      std::vector<std::string> lines;
      std::vector<float> values(1 << 16);
      for (int call = 0; call < 100; ++call) {
        std::fill(values.begin(), values.end(), 1e-3F);
        for (std::size_t i = 0; i < values.size(); i += 256) {
          values[i] = 1000;
        }
        job.reduce(values);
        for (std::string& line : job.rank.member.take_lines()) {
          lines.push_back(std::move(line));
        }
      }
      ASSERT_EQ(lines.size(), rank == 0 ? (mended ? 1U : 2U) : 0U);
      if (rank == 0 && !mended) {
        EXPECT_NE(lines[1].find("99.6% of the values"), std::string::npos) << lines[1];
        EXPECT_NE(lines[1].find("min_bytes = 262144, max_bytes = 524287, codec = \"int8\", error_feedback = \"on\""),
                  std::string::npos)
            << lines[1];
      }
    });
  }
}

TEST(Member, NotesNanInWhatItCompresses) {
  const Configuration configuration = configuration_of("");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Rank rank(configuration, transport);
    std::vector<float> values(kCount, 1);
    const auto reduce = [&] {
      rank.member.all_reduce(rank.route_of(kCount, values.data()), view(values.data(), kCount),
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
