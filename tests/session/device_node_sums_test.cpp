// Tests sessions over a device whose library sums inside nodes, under the algorithm hierarchical.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "device_model.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

Policy tiered(const std::string& codec, const std::string& more = "", const std::string& algorithm = "hierarchical") {
  return Policy::parse("[defaults]\ncodec = \"" + codec + "\"\nsmall = \"off\"\nalgorithm = \"" + algorithm + "\"\n" +
                       more);
}

const std::vector<std::uint32_t> kTwoByTwo{0, 0, 1, 1};

Trainer trainer_of(const std::shared_ptr<Transport>& transport, const Policy& policy, bool by_scale = false) {
  return {transport, true, policy, {}, ~std::size_t{0}, by_scale, true};
}

/// Runs `body` on each rank of the nodes and returns the results.
std::vector<std::string> on_nodes(const std::vector<std::uint32_t>& nodes,
                                  const std::function<std::string(std::shared_ptr<Transport>)>& body) {
  std::vector<std::string> results(nodes.size());
  run_ranks(make_inproc_world(static_cast<int>(nodes.size()), nodes), [&](const std::shared_ptr<Transport>& transport) {
    results[static_cast<std::size_t>(transport->rank())] = body(transport);
  });
  return results;
}

double distance(const std::string& a, const std::string& b) {
  double error = 0;
  double norm = 1e-30;
  for (std::size_t i = 0; i + sizeof(float) <= a.size(); i += sizeof(float)) {
    float x = 0;
    float y = 0;
    std::memcpy(&x, a.data() + i, sizeof x);
    std::memcpy(&y, b.data() + i, sizeof y);
    error += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(error / norm);
}

std::string first_gradient(const Trainer& trainer) { return content({trainer.gradients[0]}); }

TEST(DeviceNodeSums, AllRanksHaveTheMeanAndAFewResiduals) {
  for (const auto& nodes : {kTwoByTwo, std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2}}) {
    for (const char* codec : {"int8", "int4", "topk(5%)+int8"}) {
      SCOPED_TRACE(codec);
      const auto train = [&](const Policy& policy) {
        return on_nodes(nodes, [&](const auto& transport) {
          Trainer trainer = trainer_of(transport, policy);
          std::string all;
          for (std::uint64_t step = 0; step < 4; ++step) {
            trainer.step(step);
            all += first_gradient(trainer);
          }
          const SessionStatistics statistics = trainer.session.statistics();
          const Statistics& totals = statistics.groups.at(0).totals;
          EXPECT_EQ(statistics.groups.at(0).algorithm, std::string(to_string(policy.defaults.algorithm)));
          if (policy.defaults.algorithm == Algorithm::hierarchical) {
            EXPECT_THAT(trainer.session.explain(), HasSubstr(", intra exact"));
            EXPECT_EQ(totals.bytes_intra + totals.bytes_inter, totals.bytes_sent);
            EXPECT_GT(totals.bytes_inter, 0U);
          }
          return all + "|" + std::to_string(trainer.session.residual_bytes());
        });
      };
      const auto got = train(tiered(codec));
      const auto flat = train(tiered(codec, "", "two_shot"));
      const auto exact = train(tiered("exact", "", "two_shot"));
      const auto values = [](const std::string& all) { return all.substr(0, all.rfind('|')); };
      for (std::size_t rank = 1; rank < got.size(); ++rank) {
        EXPECT_TRUE(values(got[rank]) == values(got[0])) << "rank " << rank;
      }
      EXPECT_LE(distance(values(got[0]), values(exact[0])), 1.5 * distance(values(flat[0]), values(exact[0])));
      const auto bytes = [](const std::string& all) { return std::stoull(all.substr(all.rfind('|') + 1)); };
      EXPECT_LE(bytes(got[0]), bytes(flat[0]) / 2 + 4096) << "two ranks of a node share its residuals";
    }
  }
}

TEST(DeviceNodeSums, APolicySaysWhatANodeIs) {
  const auto train = [](const std::vector<std::uint32_t>& nodes, const std::string& more) {
    return on_nodes(nodes, [&](const auto& transport) {
      Trainer trainer = trainer_of(transport, tiered("int4", more));
      trainer.step(0);
      return content(trainer.gradients);
    })[0];
  };
  EXPECT_TRUE(train({0, 0, 0, 0}, "[tier]\nranks_per_node = 2\n") == train(kTwoByTwo, ""));
  EXPECT_FALSE(train(kTwoByTwo, "[tier.intra]\ncodec = \"bf16\"\n") == train(kTwoByTwo, ""));
}

// Mutation tried: an owner's residual is saved as a node's.
TEST(DeviceNodeSums, AStateContinuesWithTheSameBits) {
  for (const bool by_scale : {false, true}) {
    const Policy policy = tiered("int4", "decay = 0.9\n[bucket]\nchunk = \"4KiB\"\n");
    const auto train = [&](bool resumes) {
      return on_nodes(kTwoByTwo, [&](const auto& transport) {
        Trainer before = trainer_of(transport, policy, by_scale);
        for (std::uint64_t step = 0; step < 4; ++step) {
          before.step(step);
        }
        if (!resumes) {
          std::string all;
          for (std::uint64_t step = 4; step < 7; ++step) {
            before.step(step);
            all += content(before.gradients);
          }
          return all + before.saved();
        }
        std::istringstream state(before.saved());
        Trainer after = trainer_of(transport, policy, by_scale);
        after.session.load(state);
        EXPECT_EQ(after.session.residual_bytes(), before.session.residual_bytes());
        std::string all;
        for (std::uint64_t step = 4; step < 7; ++step) {
          after.step(step);
          all += content(after.gradients);
        }
        return all + after.saved();
      });
    };
    EXPECT_TRUE(train(true) == train(false));
  }
}

// Whatever algorithm made the residuals, and whichever brings them with an exact step, nothing is lost.
TEST(DeviceNodeSums, ResidualsGoFromAndToOtherAlgorithms) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "gradwire-device-node-sums";
  const Policy flat = tiered("int2", "", "two_shot");
  for (const Policy& first : {tiered("int2"), flat}) {
    for (const bool weighted : {false, true}) {
      const auto weight_of = [&](Trainer& trainer) {
        if (weighted) {
          trainer.session.set_weight(1 + trainer.transport->rank());
        }
      };
      std::filesystem::remove_all(folder);
      run_ranks(make_inproc_world(4, kTwoByTwo), [&](const std::shared_ptr<Transport>& transport) {
        Trainer trainer = trainer_of(transport, first);
        for (std::uint64_t step = 0; step < 3; ++step) {
          weight_of(trainer);
          trainer.step(step);
        }
        trainer.session.save(folder);
      });
      const auto worth = [&](const Policy& policy, bool on_device, const std::vector<std::uint32_t>& nodes) {
        return on_nodes(nodes, [&](const auto& transport) {
          Trainer trainer(transport, on_device, policy, {}, ~std::size_t{0}, false, true);
          trainer.session.load(folder);
          weight_of(trainer);
          trainer.session.flush();
          for (const TypedGradient& gradient : trainer.gradients) {
            trainer.session.ready_zero(gradient.id);
          }
          trainer.session.finish();
          trainer.wait_for_device();
          EXPECT_EQ(trainer.session.residual_bytes(), 0U);
          return first_gradient(trainer);
        })[0];
      };
      const std::string wanted = worth(flat, false, kTwoByTwo);
      EXPECT_GT(distance(wanted, std::string(wanted.size(), '\0')), 0);
      EXPECT_LE(distance(worth(tiered("int2"), true, kTwoByTwo), wanted), 1e-6);
      EXPECT_LE(distance(worth(tiered("int2"), true, {0, 1, 0, 1}), wanted), 1e-6) << "ranks on other nodes";
      EXPECT_LE(distance(worth(flat, true, kTwoByTwo), wanted), 1e-6);
      EXPECT_LE(distance(worth(tiered("int2"), false, kTwoByTwo), wanted), 1e-6) << "a host's hierarchical";
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(DeviceNodeSums, AreCaptured) {
  const auto train = [](bool captures) {
    return on_nodes(kTwoByTwo, [&](const auto& transport) {
      Trainer trainer = trainer_of(transport, tiered("int4"));
      trainer.session.reserve();
      HostDevice::Work graph;
      const std::uint64_t allocations = trainer.device->allocations;
      if (captures) {
        trainer.device->begin_capture();
        trainer.ready_all();
        trainer.session.finish();
        graph = trainer.device->end_capture();
        EXPECT_EQ(trainer.device->allocations, allocations);
      }
      std::string all;
      for (std::uint64_t step = 0; step < 4; ++step) {
        if (captures) {
          trainer.replay(step, graph);
        } else {
          trainer.step(step);
        }
        all += trainer.seen;
      }
      return all;
    });
  };
  EXPECT_TRUE(train(true) == train(false));
}

TEST(DeviceNodeSums, RanksOfOneHostAreANode) {
  class Hosts final : public exchange::Peers {
   public:
    [[nodiscard]] std::vector<std::string> all_gather(const std::string& mine, const std::string& /*what*/) override {
      return {"a", mine, "a", "c", mine};
    }
  };
  Hosts peers;
  EXPECT_EQ(exchange::nodes_by_host(peers, "b"), (std::vector<std::uint32_t>{0, 1, 0, 3, 1}));
}

TEST(DeviceNodeSums, WhatCannotBeIsRefusedOrSaid) {
  const auto error = [](const Policy& policy) {
    std::string text;
    on_nodes(kTwoByTwo, [&](const auto& transport) {
      Trainer trainer = trainer_of(transport, policy);
      const Error thrown = error_of([&] { static_cast<void>(trainer.session.explain()); });
      EXPECT_EQ(thrown.code(), ErrorCode::invalid_argument);
      if (transport->rank() == 0) {
        text = thrown.what();
      }
      return std::string();
    });
    return text;
  };
  Policy deterministic = tiered("int8");
  deterministic.deterministic = true;
  EXPECT_THAT(error(deterministic), HasSubstr("NCCL's order, which deterministic = true forbids; write two_shot"));
  EXPECT_THAT(error(tiered("int8", "[tier.intra]\ncodec = \"int8\"\n")),
              HasSubstr("[tier.intra]: NCCL sums inside nodes in f32 or bf16, not by int8"));
  on_nodes({0, 0, 1}, [](const auto& transport) {
    Trainer trainer = trainer_of(transport, tiered("int8"));
    EXPECT_THAT(trainer.session.explain(),
                HasSubstr("hierarchical is two_shot here: nodes differ in size: nodes of 2 and 1 ranks"));
    trainer.step(0);
    return std::string();
  });
}

}  // namespace
}  // namespace gradwire::test
