// Tests late results of sync = { async = true, ... }: in saved states, under other modes, and beside groups under
// `step`.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <sstream>
#include <utility>

#include "tests/support/forwarding_transport.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "trained_model.hpp"

namespace gradwire::test {
namespace {

// Mutation tried: late results are not saved.
TEST(LateResults, ResultsOnTheirWaySurviveSavingAndLoading) {
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    auto session = std::make_unique<Session>(transport, policy_of("topk(5%)+int8", async(2)));
    TrainedModel model;
    model.add_to(*session);
    for (std::uint64_t step = 0; step < 6; ++step) {
      model.train(*session, step);
    }
    std::stringstream stream;
    session->save(stream);
    TrainedModel copy = model;
    for (std::uint64_t step = 6; step < 12; ++step) {
      model.train(*session, step);
    }
    session.reset();  // a transport serves one session at a time
    Session resumed(transport, policy_of("topk(5%)+int8", async(2)));
    copy.add_to(resumed);
    resumed.load(stream);
    for (std::uint64_t step = 6; step < 12; ++step) {
      copy.train(resumed, step);
    }
    EXPECT_TRUE(model.values() == copy.values());
  });
}

// Returns the results of steps of zeros, which show the residuals and the late results.
std::vector<double> worth(int world, const std::string& sync, const std::filesystem::path& folder) {
  std::vector<double> sum;
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    std::vector<double> mine;
    Session session(transport, policy_of("topk(5%)+int8", sync));
    model.add_to(session);
    session.load(folder);
    for (int step = 0; step < 3; ++step) {
      for (auto& tensor : model.tensors) {
        std::fill(tensor.gradient.begin(), tensor.gradient.end(), 0.0F);
      }
      if (step == 2) {
        session.flush();
      }
      model.reduce(session);
      add(mine, model.gradients(), 1);
    }
    EXPECT_EQ(session.residual_bytes(), 0U);
    if (transport->rank() == 0) {
      sum = mine;
    }
  });
  return sum;
}

// Mutations tried: a plan without modes forgets late results; a world of another size forgets them.
TEST(LateResults, ResultsOnTheirWayReachAnotherModeAndAnotherWorld) {
  const ScratchFolder folder;
  std::vector<double> wanted;
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    std::vector<double> all;
    std::vector<double> got;
    Session session(transport, policy_of("topk(5%)+int8", async(2)));
    model.add_to(session);
    for (std::uint64_t step = 0; step < 6; ++step) {
      for (int rank = 0; rank < 3; ++rank) {
        model.compute_gradients(rank, step);
        add(all, model.gradients(), 1.0 / 3);
      }
      model.compute_gradients(transport->rank(), step);
      model.reduce(session);
      add(got, model.gradients(), 1);
    }
    session.save(folder.path());
    if (transport->rank() == 0) {
      wanted = all;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        wanted[i] -= got[i];
      }
    }
  });
  EXPECT_LE(relative_error(worth(3, async(2), folder.path()), wanted), 1e-5);
  EXPECT_LE(relative_error(worth(3, async(0), folder.path()), wanted), 1e-5);
  EXPECT_LE(relative_error(worth(3, "\"step\"", folder.path()), wanted), 1e-5);
  EXPECT_LE(relative_error(worth(2, async(1), folder.path()), wanted), 1e-5);
  EXPECT_LE(relative_error(worth(3, "{ every = 8, from_step = 50 }", folder.path()), wanted), 1e-5);
}

// A loss scaler may lower the scale much between a gradient and its arrival. Mutation tried: the change of scale is
// added to the gradient, which cancels.
TEST(LateResults, ArriveInTheScaleOfTheirStepHoweverFarItFell) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(1000);
    Session session(transport, Policy::parse("[defaults]\ncodec = \"exact\"\nsmall = \"off\"\n"
                                             "sync = { async = true, staleness = 1 }"));
    const TensorId id = session.add("embed", view(gradient.data(), gradient.size()));
    const auto value = [](std::size_t i) { return 1.0F + static_cast<float>(i) / 1024; };
    for (const float scale : {33554432.0F, 1.0F}) {
      session.set_loss_scale(scale);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = scale * value(i);
      }
      session.ready(id);
      session.finish();
    }
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_EQ(gradient[i], value(i)) << "element " << i << " of the step before";
    }
  });
}

// A transport that holds messages of kLarge bytes or more until the gate opens.
class Gated final : public ForwardingTransport {
 public:
  static constexpr std::size_t kLarge = 16 << 10;

  Gated(std::shared_ptr<Transport> inner, const std::atomic<bool>& open)
      : ForwardingTransport(std::move(inner)), open_(open) {}
  [[nodiscard]] TransportCapabilities capabilities() const override { return {}; }
  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    if (data.size() < kLarge) {
      inner().post_send(operation, peer, tag, data);
      return;
    }
    operation.state = Operation::State::pending;
    held_.push_back({&operation, peer, tag, data});
  }
  bool progress(std::chrono::microseconds wait) override {
    if (open_) {
      for (const Held& held : std::exchange(held_, {})) {
        held.operation->state = Operation::State::idle;
        inner().post_send(*held.operation, held.peer, held.tag, held.data);
      }
    }
    return inner().progress(wait);
  }
  bool cancel(Operation& operation) noexcept override {
    if (std::erase_if(held_, [&](const Held& held) { return held.operation == &operation; }) > 0) {
      operation.state = Operation::State::idle;
      return true;
    }
    return inner().cancel(operation);
  }

 private:
  struct Held {
    Operation* operation;
    int peer;
    Tag tag;
    std::span<const std::byte> data;
  };
  const std::atomic<bool>& open_;
  std::vector<Held> held_;
};

// A small tensor is reduced under `step`, beside one whose messages leave only after both steps have ended. Mutation
// tried: one executor for both.
TEST(LateResults, GroupsUnderStepDoNotWaitForThem) {
  std::atomic<bool> open{false};
  std::atomic<int> waiting{2};
  auto world = make_inproc_world(2);
  for (auto& transport : world) {
    transport = std::make_shared<Gated>(transport, open);
  }
  run_ranks(std::move(world), [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> dense(1000, 1);
    std::vector<float> embed(500000, 1);
    Session session(transport, Policy::parse("[defaults]\ncodec = \"exact\"\nsmall = \"off\"\n[[rule]]\n"
                                             "match = \"embed\"\nsync = { async = true, staleness = 2 }"));
    const TensorId first = session.add("dense", view(dense.data(), dense.size()));
    const TensorId second = session.add("embed", view(embed.data(), embed.size()));
    const auto step = [&] {
      std::fill(embed.begin(), embed.end(), 1.0F);
      session.ready(second);
      session.ready(first);
      session.finish();
    };
    const auto calls = [&](std::size_t group) { return session.statistics().groups.at(group).totals.calls; };
    for (std::uint64_t steps = 1; steps <= 2; ++steps) {
      step();
      EXPECT_EQ(calls(1), steps);
      EXPECT_EQ(calls(0), 0U) << "the gate let messages through";
    }
    open = --waiting == 0 || open;
    session.flush();
    step();
    EXPECT_EQ(calls(0), 3U);
    EXPECT_EQ(embed[0], 3);
  });
}

}  // namespace
}  // namespace gradwire::test
