// Compares the memory that a plan forecasts with what sessions hold.
#include <gtest/gtest.h>

#include <string>

#include "model.hpp"
#include "plan/memory_use.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

struct Case {
  const char* policy;
  std::vector<std::uint32_t> nodes;  // of each rank
  bool keeps;                        // residuals
};

plan::Plan plan_of(const Policy& policy, const std::vector<Gradient>& gradients,
                   const std::vector<std::uint32_t>& nodes) {
  std::vector<TensorInfo> infos;
  for (const Gradient& gradient : gradients) {
    infos.push_back({gradient.name, gradient.values.size(), DType::f32, 1});
  }
  return plan::make_plan(policy, infos, {.world_size = static_cast<int>(nodes.size()), .nodes = nodes});
}

// Mutation tried: the owner's residuals are counted for the whole bucket.
TEST(MemoryUse, ForecastsTheResidualsOfEveryRank) {
  const Case cases[] = {
      {"[defaults]\ncodec = \"int8\"\n", {0, 1}, false},
      {"[defaults]\ncodec = \"int4\"\n", {0, 1}, true},
      {"[defaults]\ncodec = \"int4\"\nsecond_hop = \"exact\"\n", {0, 1, 2}, true},
      {"[defaults]\ncodec = \"topk(1%)+int8\"\n", {0, 1, 2, 3, 4}, true},
      {"[defaults]\ncodec = \"int4\"\nalgorithm = \"hierarchical\"\n", {0, 0, 1, 1}, true},
      {"[defaults]\ncodec = \"int4\"\nwarmup = [ { until_step = 1, codec = \"int8\" } ]\n", {0, 1, 2}, true},
      {"[[rule]]\nmatch = \"layer*\"\ncodec = \"int2\"\n", {0, 1}, true},
      {"[defaults]\ncodec = \"int4\"\nresiduals = { dtype = \"int8\" }\n", {0, 1, 2}, true},
      {"[defaults]\ncodec = \"int4\"\nalgorithm = \"hierarchical\"\nresiduals = { dtype = \"int8\" }\n",
       {0, 0, 1, 1},
       true},
  };
  for (const Case& one : cases) {
    const Policy policy = Policy::parse("version = 1\n" + std::string(one.policy));
    run_ranks(make_inproc_world(static_cast<int>(one.nodes.size()), one.nodes), [&](const auto& transport) {
      auto gradients = make_gradients();
      Session session(transport, policy);
      add_all(session, gradients);
      for (std::uint64_t step = 0; step < 3; ++step) {
        fill(gradients, session.rank(), step);
        for (const Gradient& gradient : gradients) {
          session.ready(gradient.id);
        }
        session.finish();
      }
      const plan::MemoryUse use = memory_of(plan_of(policy, gradients, one.nodes), session.rank());
      EXPECT_EQ(use.local + use.summed, session.residual_bytes()) << one.policy << ", rank " << session.rank();
      EXPECT_EQ(session.residual_bytes() > 0, one.keeps) << one.policy;
    });
  }
}

// Packed frames are as large as exact ones at most, and are unpacked elsewhere.
TEST(MemoryUse, ForecastsWherePackedFramesAreUnpacked) {
  const auto frames = [](const std::string& codec) {
    const Policy policy =
        Policy::parse("[defaults]\ncodec = \"" + codec + "\"\nalgorithm = \"two_shot\"\n[bucket]\nin_flight = 0\n");
    return memory_of(plan_of(policy, make_gradients(), {0, 1}), 0).frames;
  };
  EXPECT_GT(frames("exact+zstd"), frames("exact"));
  EXPECT_LT(frames("exact+zstd"), 2 * frames("exact"));
}

}  // namespace
}  // namespace gradwire::test
