// Tests sessions whose policy leaves the algorithm open: the choice and its report, what a policy overrides, and saved
// states of other algorithms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "model.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using Nodes = std::vector<std::uint32_t>;

const std::vector<Nodes> kTiered{{0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 1, 0}};
const std::vector<Nodes> kFlat{{0, 0, 0, 1}, {0, 0, 1}, {0, 0, 0, 0}, {0, 1, 2, 3}};

Policy policy_of(const std::string& defaults, const std::string& more = "") {
  return Policy::parse("[defaults]\n" + defaults + "\nsmall = \"off\"\n" + more);
}

struct Chosen {
  std::string explanation;
  SessionStatistics statistics;
  std::vector<std::vector<float>> results;  // by rank
};

// Returns the codecs of a case; sanitizers, which are slow, play the first.
std::span<const char* const> share_of(std::span<const char* const> codecs) {
  return codecs.first(kStepShare == 1 ? codecs.size() : 1);
}

// Returns what rank 0's session reports after three steps.
Chosen chosen_on(const Nodes& nodes, const Policy& policy, bool weighted = false) {
  Chosen trained;
  trained.results.resize(nodes.size());
  run_ranks(make_inproc_world(static_cast<int>(nodes.size()), nodes), [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, policy);
    add_all(session, gradients);
    for (std::uint64_t number = 0; number < 3; ++number) {
      fill(gradients, session.rank(), number);
      if (weighted) {
        session.set_weight(1.0 + session.rank());
      }
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      session.finish();
    }
    for (const Gradient& gradient : gradients) {
      auto& all = trained.results[static_cast<std::size_t>(transport->rank())];
      all.insert(all.end(), gradient.values.begin(), gradient.values.end());
    }
    if (transport->rank() == 0) {
      trained.explanation = session.explain();
      trained.statistics = session.statistics();
    }
  });
  for (const auto& result : trained.results) {
    EXPECT_TRUE(result == trained.results[0]);
  }
  return trained;
}

// A chosen algorithm gives the same bits as naming it, on every rank. Mutation tried: hierarchical is never chosen.
TEST(SessionAlgorithm, NodesOfSeveralRanksAreHierarchicalUnasked) {
  constexpr const char* kCodecs[] = {"int8", "int4", "bf16"};
  for (const Nodes& nodes : kTiered) {
    for (const bool weighted : {false, true}) {
      for (const char* codec : share_of(kCodecs)) {
        const std::string name = "codec = \"" + std::string(codec) + "\"";
        const Chosen chosen = chosen_on(nodes, policy_of(name), weighted);
        const Chosen named = chosen_on(nodes, policy_of(name + "\nalgorithm = \"hierarchical\""), weighted);
        EXPECT_TRUE(chosen.results[0] == named.results[0]) << codec;
        EXPECT_EQ(chosen.statistics.groups.at(0).algorithm, "hierarchical");
        EXPECT_EQ(named.statistics.groups.at(0).algorithm_reason, "");
        EXPECT_EQ(chosen.statistics.all().bytes_inter, named.statistics.all().bytes_inter);
      }
    }
  }
}

// Mutation tried: uneven nodes count as nodes of several ranks.
TEST(SessionAlgorithm, OtherNodesStayFlat) {
  constexpr const char* kCodecs[] = {"topk(2%)+int8", "int8", "int4"};
  for (const Nodes& nodes : kFlat) {
    for (const char* codec : share_of(kCodecs)) {
      const std::string name = "codec = \"" + std::string(codec) + "\"";
      const Chosen chosen = chosen_on(nodes, policy_of(name));
      EXPECT_TRUE(chosen.results[0] == chosen_on(nodes, policy_of(name + "\nalgorithm = \"two_shot\"")).results[0]);
      EXPECT_EQ(chosen.statistics.groups.at(0).algorithm, "two_shot");
    }
  }
  const Chosen selected = chosen_on({0, 0, 1, 1}, policy_of("codec = \"topk(2%)+int8\""));
  EXPECT_EQ(selected.statistics.groups.at(0).algorithm, "two_shot");
  EXPECT_THAT(chosen_on({0, 0, 0, 1}, policy_of("")).explanation,
              HasSubstr("by the cost model: two_shot: nodes differ in size: nodes of 3 and 1 ranks\n"));
}

TEST(SessionAlgorithm, ExplainAndStatisticsSayWhichAndWhy) {
  const Chosen trained = chosen_on({0, 0, 1, 1}, policy_of("",
                                                           "[[rule]]\nmatch = \"layer1.bias\"\n"
                                                           "[[rule]]\nmatch = \"head*\"\nalgorithm = \"two_shot\"\n"));
  EXPECT_THAT(trained.explanation, HasSubstr("algorithm of default by the cost model: hierarchical: 2 nodes of 2 "
                                             "ranks\n"));
  EXPECT_THAT(trained.explanation,
              HasSubstr("algorithm of rule 1 (layer1.bias) by the cost model: one_shot: latency rules\n"));
  EXPECT_THAT(trained.explanation, Not(HasSubstr("algorithm of rule 2")));
  const std::string table = trained.statistics.to_text();
  EXPECT_THAT(table, HasSubstr("algorithm of default by the cost model: hierarchical: 2 nodes of 2 ranks\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("default +int8 +hierarchical "));
  EXPECT_THAT(table, ::testing::ContainsRegex("rule 1 \\(layer1.bias\\) +int8 +one_shot "));
  EXPECT_THAT(table, ::testing::ContainsRegex("rule 2 \\(head\\*\\) +int8 +two_shot "));
  const auto json = nlohmann::json::parse(trained.statistics.to_json());
  for (const auto& group : json.at("groups")) {
    if (group.at("name") == "default") {
      EXPECT_EQ(group.at("algorithm_reason"), "hierarchical: 2 nodes of 2 ranks");
    }
  }
}

// Buckets of one group may differ.
TEST(SessionAlgorithm, EachBucketChoosesByItsSize) {
  const Chosen trained = chosen_on({0, 0, 1, 1}, policy_of("", "[bucket]\nbytes = \"1KiB\"\n"));
  const std::string& used = trained.statistics.groups.at(0).algorithm;
  EXPECT_THAT(used, ::testing::ContainsRegex("one_shot [0-9], hierarchical [0-9]"));
  EXPECT_THAT(trained.explanation, HasSubstr("one_shot: latency rules, hierarchical: 2 nodes of 2 ranks\n"));
}

// Ranks that differ are reported as ever: by what their plans say.
TEST(SessionAlgorithm, RanksThatDifferAreTold) {
  const auto errors =
      run_ranks_catching(make_inproc_world(4, {0, 0, 1, 1}), [&](const std::shared_ptr<Transport>& transport) {
        auto gradients = make_gradients();
        Session session(transport, policy_of(transport->rank() >= 2 ? "algorithm = \"two_shot\"" : ""),
                        {.timeout = std::chrono::seconds(20)});
        add_all(session, gradients);
        fill(gradients, session.rank(), 0);
        for (const Gradient& gradient : gradients) {
          session.ready(gradient.id);
        }
        session.finish();
      });
  for (const std::exception_ptr& error : errors) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 0 has intra bf16, algorithm hierarchical, rank 2 has algorithm two_shot;"));
      EXPECT_THAT(e.what(), EndsWith(" (rank 3 differs from rank 0, too)"));
    }
  }
}

struct Member {
  std::vector<Gradient> gradients = make_gradients();
  Session session;
  Member(const std::shared_ptr<Transport>& transport, const Policy& policy) : session(transport, policy) {
    add_all(session, gradients);
  }
  void step(std::uint64_t number) {
    fill(gradients, session.rank(), number);
    for (const Gradient& gradient : gradients) {
      session.ready(gradient.id);
    }
    session.finish();
  }
};

double distance(const std::vector<double>& got, const std::vector<double>& wanted) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(error / norm);
}

// Loads a state of one algorithm under another, also of another world: no residual is lost. Mutation tried: sums over
// nodes are not saved.
TEST(SessionAlgorithm, StatesOfOtherAlgorithmsLoadAndLoseNothing) {
  const std::string codec = "codec = \"int4\"\n";
  struct Move {
    std::string from;
    std::string to;
    Nodes before;
    Nodes after;
  };
  const std::vector<Move> moves{{"algorithm = \"two_shot\"", "", {0, 0, 1, 1}, {0, 0, 1, 1}},
                                {"", "algorithm = \"two_shot\"", {0, 0, 1, 1}, {0, 0, 1, 1}},
                                {"algorithm = \"one_shot\"", "", {0, 0, 1, 1}, {0, 0, 1, 1}},
                                {"", "", {0, 0, 1, 1}, {0, 0, 0, 1}},
                                {"", "", {0, 1, 2, 3}, {0, 1, 1, 0}}};
  for (const Move& move : moves) {
    const ScratchFolder folder;
    std::vector<double> wanted;
    std::vector<double> got;
    const auto note = [&](const Member& trainer, std::uint64_t number) {
      if (trainer.session.rank() != 0) {
        return;
      }
      const std::vector<float>& values = trainer.gradients[0].values;
      wanted.resize(values.size());
      got.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        got[i] += values[i];
        for (int rank = 0; rank < 4; ++rank) {
          wanted[i] += gradient_value(0, i, rank, number) / 4.0;
        }
      }
    };
    run_ranks(make_inproc_world(4, move.before), [&](const std::shared_ptr<Transport>& transport) {
      Member trainer(transport, policy_of(codec + move.from));
      for (std::uint64_t number = 0; number < 4; ++number) {
        trainer.step(number);
        note(trainer, number);
      }
      trainer.session.save(folder.path());
    });
    run_ranks(make_inproc_world(4, move.after), [&](const std::shared_ptr<Transport>& transport) {
      Member trainer(transport, policy_of(codec + move.to));
      trainer.session.load(folder.path());
      EXPECT_EQ(trainer.session.step(), 4U);
      for (std::uint64_t number = 4; number < 9; ++number) {
        if (number == 8) {
          trainer.session.flush();
        }
        trainer.step(number);
        note(trainer, number);
      }
      EXPECT_EQ(trainer.session.residual_bytes(), 0U);
    });
    EXPECT_LE(distance(got, wanted), 1e-6) << move.from << " to " << move.to;
  }
}

// Eight ranks in nodes of two, then three that are uneven: states of the default move between worlds.
TEST(SessionAlgorithm, StatesMoveToWorldsWithOtherNodes) {
  const ScratchFolder folder;
  std::vector<double> before(50000);
  run_ranks(make_inproc_world(8, kTiered[1]), [&](const std::shared_ptr<Transport>& transport) {
    Member trainer(transport, policy_of("codec = \"int4\""));
    trainer.step(0);
    trainer.session.save(folder.path());
    trainer.session.flush();  // hands out the residuals
    for (const Gradient& gradient : trainer.gradients) {
      trainer.session.ready_zero(gradient.id);
    }
    trainer.session.finish();
    if (transport->rank() == 0) {
      before.assign(trainer.gradients[0].values.begin(), trainer.gradients[0].values.end());
    }
  });
  run_ranks(make_inproc_world(3, {0, 0, 1}), [&](const std::shared_ptr<Transport>& transport) {
    Member trainer(transport, policy_of("codec = \"int4\""));
    trainer.session.load(folder.path());
    trainer.session.flush();
    for (const Gradient& gradient : trainer.gradients) {
      trainer.session.ready_zero(gradient.id);
    }
    trainer.session.finish();
    if (transport->rank() == 0) {
      const std::vector<float>& values = trainer.gradients[0].values;
      EXPECT_LE(distance({values.begin(), values.end()}, before), 1e-5);
    }
  });
}

// Local steps, late results and an outer optimizer over nodes of several ranks.
TEST(SessionAlgorithm, SyncModesGoByTheDefault) {
  run_ranks(make_inproc_world(4, {0, 0, 1, 1}), [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(40000);
    std::vector<float> parameter(40000, 1.0F);
    std::vector<float> late(40000);
    Session session(transport, policy_of("",
                                         "[[rule]]\nmatch = \"local\"\nsync = { every = 2 }\n"
                                         "[[rule]]\nmatch = \"late\"\nsync = { async = true, staleness = 1 }\n"));
    const TensorId a =
        session.add("local", view(gradient.data(), gradient.size()), {parameter.data(), parameter.size(), DType::f32});
    const TensorId b = session.add("late", view(late.data(), late.size()));
    for (int step = 0; step < 5; ++step) {  // averages the parameters that step 4 begins with
      std::fill(parameter.begin(), parameter.end(), 1.0F + static_cast<float>(transport->rank()));
      std::fill(late.begin(), late.end(), 2.0F);
      session.ready(a);
      session.ready(b);
      session.finish();
    }
    EXPECT_FLOAT_EQ(parameter[7], 2.5F);
    EXPECT_NEAR(late[7], 2.0F, 0.05F);
    for (const auto& group : session.statistics().groups) {
      EXPECT_EQ(group.algorithm, "hierarchical") << group.name;
    }
  });
}

}  // namespace
}  // namespace gradwire::test
