// Tests sessions over two tiers of links: what the plan says, what travels, and ranks that disagree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Nodes = std::vector<std::uint32_t>;

Policy hierarchical(const std::string& more = "", const std::string& codec = "int8") {
  return Policy::parse("[defaults]\ncodec = \"" + codec + "\"\nalgorithm = \"hierarchical\"\nsmall = \"off\"\n" + more);
}

void step(Session& session, std::vector<Gradient>& gradients, std::uint64_t number) {
  fill(gradients, session.rank(), number);
  for (const Gradient& gradient : gradients) {
    session.ready(gradient.id);
  }
  session.finish();
}

// Rank 0's session after three steps of a world on these nodes.
struct Trained {
  std::string explanation;
  SessionStatistics statistics;
  double error = 0;
  std::vector<std::vector<float>> results;  // by rank
};

Trained train(const Nodes& nodes, const Policy& policy) {
  Trained trained;
  const int world = static_cast<int>(nodes.size());
  trained.results.resize(nodes.size());
  run_ranks(make_inproc_world(world, nodes), [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, policy);
    add_all(session, gradients);
    for (std::uint64_t number = 0; number < 3; ++number) {
      step(session, gradients, number);
    }
    for (const Gradient& gradient : gradients) {
      auto& all = trained.results[static_cast<std::size_t>(transport->rank())];
      all.insert(all.end(), gradient.values.begin(), gradient.values.end());
    }
    if (transport->rank() == 0) {
      trained.explanation = session.explain();
      trained.statistics = session.statistics();
      trained.error = error_against(gradients, 2, mean_factor(world));
    }
  });
  for (const auto& result : trained.results) {
    EXPECT_TRUE(result == trained.results[0]);
  }
  return trained;
}

TEST(SessionTiers, TheCodecOfEachTierIsSaidAndUsed) {
  const Nodes nodes{0, 0, 1, 1};
  const Trained tiered = train(nodes, hierarchical());
  EXPECT_THAT(tiered.explanation, HasSubstr("tiers: 2 nodes of 2 ranks\n"));
  EXPECT_THAT(tiered.explanation, HasSubstr("int8, intra bf16  hierarchical"));
  EXPECT_THAT(tiered.explanation, Not(HasSubstr("note:")));
  EXPECT_EQ(tiered.statistics.groups.at(0).algorithm, "hierarchical");
  EXPECT_LE(tiered.error, 0.03);
  EXPECT_GT(tiered.error, 1e-5);
  const Trained flat = train(nodes, Policy::uniform("int8", Algorithm::two_shot));
  const auto inter = [](const Trained& trained) { return static_cast<double>(trained.statistics.all().bytes_inter); };
  EXPECT_NEAR(inter(tiered) / inter(flat), 0.5, 0.02) << "one sum per node, not one part per rank";
  EXPECT_THAT(tiered.statistics.to_text(), HasSubstr("between nodes"));
  const auto json = nlohmann::json::parse(tiered.statistics.to_json());
  EXPECT_EQ(
      json.at("all").at("bytes_intra").get<std::uint64_t>() + json.at("all").at("bytes_inter").get<std::uint64_t>(),
      json.at("all").at("bytes_sent"));
  const Trained exact_inside = train(nodes, hierarchical("[tier.intra]\ncodec = \"exact\"\n"));
  EXPECT_THAT(exact_inside.explanation, HasSubstr("int8, intra exact"));
  EXPECT_GT(exact_inside.statistics.all().bytes_intra, tiered.statistics.all().bytes_intra * 3 / 2);
}

// The transport's own sum is counted as a ring, which leaves each node once, whatever the number of ranks in it.
TEST(SessionTiers, NativeSumsCrossEachNodesLinkOnce) {
  for (const Nodes& nodes : {Nodes{0, 0, 1, 1}, Nodes{0, 0, 0, 1, 1, 1}, Nodes{0, 1}}) {
    const int world = static_cast<int>(nodes.size());
    run_ranks(make_inproc_world(world, nodes), [&](const std::shared_ptr<Transport>& transport) {
      std::vector<float> values(6000, 1.0F);
      Session session(transport, Policy::parse("[defaults]\nalgorithm = \"dense\""));
      const TensorId id = session.add("w", {values.data(), values.size(), DType::f32});
      session.ready(id);
      session.finish();
      const Statistics all = session.statistics().all();
      EXPECT_EQ(all.frames_sent, 0U);
      EXPECT_EQ(all.bytes_sent, 2U * 24000 * static_cast<unsigned>(world - 1) / static_cast<unsigned>(world));
      EXPECT_EQ(all.bytes_inter, all.bytes_sent * 2 / nodes.size());
      EXPECT_EQ(all.bytes_inter + all.bytes_intra, all.bytes_sent);
    });
  }
}

TEST(SessionTiers, RanksPerNodeOverridesTheTransport) {
  const Trained wanted = train({0, 0, 1, 1}, hierarchical());
  const Trained got = train({0, 0, 0, 0}, hierarchical("[tier]\nranks_per_node = 2\n"));
  EXPECT_TRUE(got.results[0] == wanted.results[0]);
  EXPECT_EQ(got.statistics.all().bytes_inter, wanted.statistics.all().bytes_inter);
}

TEST(SessionTiers, UnevenNodesFallBackAndExplainSaysSo) {
  const std::vector<std::pair<Nodes, std::string>> cases{{{0, 0, 1}, "nodes differ in size: nodes of 2 and 1 ranks"},
                                                         {{0, 0}, "all ranks are on one node"},
                                                         {{0, 1, 2}, "each node has one rank"}};
  for (const auto& [nodes, why] : cases) {
    const Trained fallen = train(nodes, hierarchical());
    EXPECT_THAT(fallen.explanation, HasSubstr("note: default: the algorithm hierarchical is two_shot here: " + why));
    EXPECT_THAT(fallen.explanation, Not(HasSubstr("intra bf16")));
    EXPECT_EQ(fallen.statistics.groups.at(0).algorithm, "two_shot");
    EXPECT_TRUE(fallen.results[0] == train(nodes, Policy::uniform("int8", Algorithm::two_shot)).results[0]);
  }
}

// Codecs that are chosen at run time are used on both tiers too; dense stays flat.
TEST(SessionTiers, CodecsThatAreChosenTravelOverBothTiers) {
  const Policy policy = Policy::parse(
      "[defaults]\ncodec = \"auto\"\nallow = [\"bf16\", \"int8\"]\nalgorithm = \"hierarchical\"\nsmall = \"off\"\n");
  const Trained trained = train({0, 1, 0, 1}, policy);
  EXPECT_THAT(trained.explanation, HasSubstr("auto: dense; bf16, intra bf16; int8, intra bf16  hierarchical"));
  EXPECT_LE(trained.error, 0.03);
}

TEST(SessionTiers, RanksPerNodeMustDivideTheWorld) {
  Session session(make_inproc_world(4)[0], hierarchical("[tier]\nranks_per_node = 3\n"));
  float value = 1;
  session.add("x", view(&value, 1));
  try {
    (void)session.explain();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(),
                HasSubstr("policy policy, [tier]: ranks_per_node is 3, which does not divide the 4 ranks of this job"));
  }
}

std::vector<std::string> messages_of(const std::vector<std::exception_ptr>& errors) {
  std::vector<std::string> messages;
  for (const std::exception_ptr& error : errors) {
    messages.emplace_back();
    try {
      if (error) {
        std::rethrow_exception(error);
      }
    } catch (const Error& e) {
      messages.back() = e.what();
    }
  }
  return messages;
}

// One rank's transport reports other nodes. Mutation tried: ranks do not compare their nodes.
TEST(SessionTiers, RanksThatDisagreeAboutNodesAllFailAtTheStart) {
  for (const char* collective : {"hierarchical", "two_shot"}) {
    auto transports = make_inproc_world(4, {0, 0, 1, 1});
    const auto errors = run_ranks_catching(transports, [&](const std::shared_ptr<Transport>& transport) {
      const std::string rows = transport->rank() == 3 ? "[tier]\nranks_per_node = 4\n" : "";
      auto gradients = make_gradients();
      Session session(transport, Policy::parse(std::string("[defaults]\nalgorithm = \"") + collective + "\"\n" + rows),
                      {.timeout = std::chrono::seconds(20)});
      add_all(session, gradients);
      step(session, gradients, 0);
    });
    for (const std::string& message : messages_of(errors)) {
      EXPECT_THAT(message, HasSubstr("nodes: rank 0 has 0 0 1 1, rank 3 has 0 0 0 0 (the node of each rank); write the "
                                     "same ranks_per_node in [tier] on every rank"));
    }
  }
}

// Residuals of all three sites pass through warm-up and an exact last step. Mutation tried: a flush uses the codec for
// links inside nodes.
TEST(SessionTiers, WarmUpAndFlushConserveTheSum) {
  const Nodes nodes{0, 1, 0, 1};
  run_ranks(make_inproc_world(4, nodes), [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    const std::size_t count = gradients[0].values.size();
    std::vector<double> wanted(count);
    std::vector<double> got(count);
    Session session(
        transport,
        hierarchical("warmup = [ { until_step = 3, codec = \"exact\" }, { until_step = 8, codec = \"int8\" } ]\n"
                     "[[rule]]\nmatch = \"layer1.*\"\ncodec = \"int2\"\nalgorithm = \"two_shot\"\n",
                     "int4"));
    add_all(session, gradients);
    for (std::uint64_t number = 0; number < 16; ++number) {
      if (number == 15) {
        // The residuals are local, of the owner, and of its node's sums for the other node's shard of this place.
        EXPECT_GT(session.residual_bytes(), 0U);
        session.flush();
      }
      step(session, gradients, number);
      for (std::size_t i = 0; i < count; ++i) {
        got[i] += gradients[0].values[i];
        for (int rank = 0; rank < 4; ++rank) {
          wanted[i] += gradient_value(0, i, rank, number) / 4.0;
        }
      }
    }
    EXPECT_EQ(session.residual_bytes(), 0U);
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < count; ++i) {
      error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
      norm += wanted[i] * wanted[i];
    }
    EXPECT_LE(std::sqrt(error / norm), 1e-6);
  });
}

}  // namespace
}  // namespace gradwire::test
