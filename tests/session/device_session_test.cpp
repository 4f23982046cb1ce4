// Tests that sessions over device memory give the bits of sessions over host memory; the device here is host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_model.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

// Mixes rules, dtypes, a warm-up, small and large buckets, and chunks of a few tiles.
constexpr const char* kMixed = R"(
deterministic = true
[defaults]
codec = "topk(2%)+int8"
algorithm = "two_shot"
small = "off"
warmup = [ { until_step = 2, codec = "exact" }, { until_step = 4, codec = "int4" } ]
[[rule]]
match = "layer1.*"
codec = "int2"
[[rule]]
match = "embed.*"
codec = "sign"
[bucket]
bytes = "64KiB"
)";

// Returns a policy of small buckets, some of which are made together.
Policy joining(const std::string& codec, const std::string& join, bool feedback = true) {
  return Policy::parse("deterministic = true\n[defaults]\ncodec = \"" + codec +
                       "\"\nsmall = \"off\"\nalgorithm = \"two_shot\"\nerror_feedback = \"" +
                       (feedback ? "on" : "off") + "\"\n[bucket]\nbytes = \"16KiB\"\n[device]\njoin = \"" + join +
                       "\"\n");
}

struct Case {
  std::string name;
  Policy policy;
  SessionOptions options = {};
  bool weighted = false;
  bool flush = false;
  bool scales = false;  // scales of the loss
  bool by_scale = false;
};

// Returns the gradients after each step, and the contents of a checkpoint.
std::string train(const std::shared_ptr<Transport>& transport, bool on_device, const Case& given) {
  Trainer trainer(transport, on_device, given.policy, given.options, ~std::size_t{0}, given.by_scale);
  std::string all;
  for (std::uint64_t step = 0; step < 6; ++step) {
    if (given.weighted) {
      trainer.session.set_weight(1.5 * static_cast<double>(transport->rank()) + static_cast<double>(step % 2));
    }
    const double scale = given.scales ? (step < 3 ? 64 : 16) : 1;
    if (given.scales) {
      trainer.session.set_loss_scale(scale);
    }
    if (given.flush && step == 4) {
      trainer.session.flush();
    }
    const StepOutcome outcome = trainer.step(step, step == 3 ? 1 : ~std::size_t{0}, scale);
    EXPECT_EQ(outcome.step, step);
    EXPECT_FALSE(outcome.nonfinite);
    all += content(trainer.gradients) + std::to_string(trainer.session.residual_bytes());
  }
  return all + trainer.saved();
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* codec : {"exact", "bf16", "int8", "int4", "topk(5%)+int8"}) {
    all.push_back({codec, uniform(codec)});
  }
  all.push_back({"one_shot", uniform("topk(5%)+int8", "one_shot")});
  all.push_back({"mixed", Policy::parse(kMixed)});
  all.push_back({"mixed, flush", Policy::parse(kMixed), {}, false, true});
  all.push_back({"mixed, sum", Policy::parse(kMixed), {.reduction = Reduction::sum}});
  all.push_back({"mixed, weighted, flush", Policy::parse(kMixed), {}, true, true});
  const std::string decaying = std::string(kMixed).replace(std::string(kMixed).find("small"), 0, "decay = 0.6\n");
  all.push_back({"mixed, decay", Policy::parse(decaying)});
  all.push_back({"mixed, decay, weighted, flush", Policy::parse(decaying), {}, true, true});
  all.push_back({"mixed, loss scale", Policy::parse(kMixed), {}, false, true, true});
  for (const char* codec : {"fp8", "int4", "topk(5%)+int8", "topk(50%)+exact"}) {
    all.push_back({std::string(codec) + ", by scale", uniform(codec), {}, false, false, false, true});
  }
  for (const char* join : {"40KiB", "256MiB"}) {
    all.push_back({std::string("int8, joined to ") + join, joining("int8", join)});
    all.push_back({std::string("int4, joined, flush, to ") + join, joining("int4", join), {}, false, true});
    all.push_back(
        {std::string("fp8, joined, sum, to ") + join, joining("fp8", join, false), {.reduction = Reduction::sum}});
  }
  Policy exact_second = uniform("int8");
  exact_second.defaults.second_hop = CodecSpec::exact();
  all.push_back({"exact second hop, by scale", exact_second, {}, true, false, false, true});
  all.push_back({"one_shot, by scale", uniform("topk(5%)+int8", "one_shot"), {}, true, false, false, true});
  all.push_back(
      {"mixed, by scale, sum", Policy::parse(kMixed), {.reduction = Reduction::sum}, false, true, false, true});
  all.push_back({"mixed, by scale, decay, weighted", Policy::parse(decaying), {}, true, true, false, true});
  all.push_back({"mixed, by scale, loss scale", Policy::parse(kMixed), {}, false, true, true, true});
  return all;
}

// Mutations tried: an owner residual is one element off; there is no scatter; the step counter is not advanced;
// residuals are not kept; a bucket's run is released before it is scattered; residuals do not decay.
TEST(DeviceSession, HasTheBitsOfASessionOverHostMemory) {
  for (const Case& given : cases()) {
    for (const int world : {1, 2, 3}) {
      if (kStepShare > 1 && world == 2) {
        continue;
      }
      SCOPED_TRACE(given.name + ", world " + std::to_string(world));
      const auto wanted = on_ranks(world, [&](const auto& transport) { return train(transport, false, given); });
      const auto got = on_ranks(world, [&](const auto& transport) { return train(transport, true, given); });
      for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
        EXPECT_TRUE(got[rank] == wanted[rank]) << "rank " << rank;
      }
    }
  }
}

// Mutation tried: wait() does not look for buckets that wait.
TEST(DeviceSession, ABucketThatWaitsToBeJoinedCannotBeWaitedFor) {
  on_ranks(2, [](const auto& transport) {
    Trainer trainer(transport, true, joining("int8", "256MiB"));
    trainer.step(0);
    trainer.backward(1);
    Ticket before_last{};
    for (std::size_t t = trainer.gradients.size(); t-- > 1;) {
      before_last = trainer.session.ready(trainer.gradients[t].id);
    }
    EXPECT_FALSE(trainer.session.done(before_last));
    const Error error = error_of([&] { trainer.session.wait(before_last); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("[device] join"));
    trainer.session.ready(trainer.gradients[0].id);
    trainer.session.finish();
    trainer.session.wait(before_last);
    trainer.optimise();
    trainer.device->synchronize();
    trainer.step(2);
    return std::string();
  });
}

// The frames are the same too if the chunks are.
TEST(DeviceSession, CountsWhatItSends) {
  Policy policy = Policy::parse(kMixed);
  policy.chunk_bytes = 4 << 10;
  const auto count = [&](bool on_device) {
    return on_ranks(3, [&](const auto& transport) {
      Trainer trainer(transport, on_device, policy);
      trainer.step(0);
      trainer.step(5);
      const SessionStatistics statistics = trainer.session.statistics();
      std::string text;
      for (const auto& group : statistics.groups) {
        text += group.name + " " + std::to_string(group.totals.calls) + " " + std::to_string(group.totals.elements) +
                " " + std::to_string(group.totals.bytes_in) + " " + std::to_string(group.totals.bytes_sent) + " " +
                std::to_string(group.totals.frames_sent) + " " + std::to_string(group.totals.bytes_uncompressed) + "\n";
      }
      EXPECT_EQ(statistics.device_memory.has_value(), on_device);
      return text;
    });
  };
  EXPECT_EQ(count(true), count(false));
}

TEST(DeviceSession, StateIsTheSameFile) {
  const Policy policy = Policy::parse(kMixed);
  // Makes four steps on one kind of memory, saves, and makes two more on the other kind.
  const auto resume = [&](bool first_on_device, bool then_on_device) {
    return on_ranks(2, [&](const auto& transport) {
      std::string state;
      {
        Trainer trainer(transport, first_on_device, policy);
        for (std::uint64_t step = 0; step < 5; ++step) {
          trainer.step(step);
        }
        state = trainer.saved();
      }
      Trainer trainer(transport, then_on_device, policy);
      std::istringstream stream(state);
      trainer.session.load(stream);
      EXPECT_EQ(trainer.session.step(), 5U);
      std::string all = state;
      for (std::uint64_t step = 5; step < 8; ++step) {
        trainer.step(step);
        all += content(trainer.gradients);
      }
      return all + trainer.saved();
    });
  };
  const auto wanted = resume(false, false);
  EXPECT_TRUE(resume(true, false) == wanted);
  EXPECT_TRUE(resume(false, true) == wanted);
  EXPECT_TRUE(resume(true, true) == wanted);
}

// In another world, some residuals belong to elements that the rank does not own, and are folded in.
TEST(DeviceSession, TakesOverTheStateOfAnotherWorld) {
  const Policy policy = Policy::parse(kMixed);
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "gradwire-device-reshard";
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, policy);
    for (std::uint64_t step = 0; step < 5; ++step) {
      trainer.step(step);
    }
    trainer.session.save(folder);
  });
  const auto resume = [&](bool on_device) {
    return on_ranks(2, [&](const auto& transport) {
      Trainer trainer(transport, on_device, policy);
      trainer.session.load(folder);
      std::string all;
      for (std::uint64_t step = 5; step < 8; ++step) {
        trainer.step(step);
        all += content(trainer.gradients) + std::to_string(trainer.session.residual_bytes());
      }
      return all;
    });
  };
  EXPECT_TRUE(resume(true) == resume(false));
  std::filesystem::remove_all(folder);
}

// Devices support no tiers: they report that, and take over the residuals that hosts kept of sums over nodes. Mutation
// tried: they do not take them over.
TEST(DeviceSession, TiersAreFlatAndLoseNothing) {
  const Policy policy = uniform("int2", "hierarchical");
  const std::vector<std::uint32_t> nodes{0, 0, 1, 1};
  std::vector<std::string> states(4);
  run_ranks(make_inproc_world(4, nodes), [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, false, policy);
    for (std::uint64_t step = 0; step < 3; ++step) {
      trainer.step(step);
    }
    states[static_cast<std::size_t>(transport->rank())] = trainer.saved();
  });
  const auto worth = [&](bool on_device) {
    return on_ranks(4, [&](const auto& transport) {
      Trainer trainer(transport, on_device, policy);
      std::istringstream stream(states[static_cast<std::size_t>(transport->rank())]);
      trainer.session.load(stream);
      if (on_device) {
        EXPECT_NE(trainer.session.explain().find("hierarchical is two_shot here: over device memory"),
                  std::string::npos);
      }
      trainer.session.flush();
      for (const TypedGradient& gradient : trainer.gradients) {
        trainer.session.ready_zero(gradient.id);
      }
      trainer.session.finish();
      trainer.wait_for_device();
      return content({trainer.gradients[0]});
    });
  };
  const std::string on_host = worth(false)[0];
  const std::string on_device = worth(true)[0];
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < on_host.size(); i += sizeof(float)) {
    float wanted = 0;
    float got = 0;
    std::memcpy(&wanted, on_host.data() + i, sizeof wanted);
    std::memcpy(&got, on_device.data() + i, sizeof got);
    error += (got - wanted) * (got - wanted);
    norm += wanted * wanted;
  }
  EXPECT_GT(norm, 0);
  EXPECT_LE(std::sqrt(error / norm), 1e-6);
}

// One tensor of a bucket stays at its address; memory is taken once.
TEST(DeviceSession, TakesNoMemoryAfterTheFirstStep) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    int tries = 0;
    for (const bool reserves : {false, true, false, true}) {
      const bool by_scale = ++tries > 2;
      Trainer trainer(transport, true, uniform("topk(5%)+int8"), {}, ~std::size_t{0}, by_scale);
      if (reserves) {
        trainer.session.reserve();
      } else {
        trainer.step(0);
      }
      const std::uint64_t allocations = trainer.device->allocations;
      trainer.step(1);
      const std::uint64_t residuals = trainer.session.residual_bytes();
      EXPECT_GT(residuals, 0U);
      for (std::uint64_t step = 2; step < 4; ++step) {
        trainer.step(step);
      }
      EXPECT_EQ(trainer.device->allocations, allocations);
      EXPECT_EQ(trainer.session.residual_bytes(), residuals);
      const DeviceMemory memory = *trainer.session.statistics().device_memory;
      EXPECT_GE(memory.bytes_in_use, residuals);
      EXPECT_GT(memory.peak_bytes, memory.bytes_in_use);
      EXPECT_GE(memory.held_bytes, memory.peak_bytes);
      EXPECT_THAT(trainer.session.statistics().to_text(), HasSubstr("device memory: "));
      EXPECT_THAT(trainer.session.statistics().to_json(), HasSubstr("\"held_bytes\""));
    }
  });
}

TEST(DeviceSession, GathersOnlyWhereABucketHasSeveralTensors) {
  auto world = make_inproc_world(1);
  auto device = std::make_shared<HostDevice>(world[0]);
  std::vector<float> one(5000, 1.0F);
  Session session = session::make_session(std::make_unique<session::DeviceRunner>(device, nullptr, SessionOptions{}),
                                          uniform("int8"), {});
  const TensorId id = session.add("one", view(one.data(), one.size()));
  session.ready(id);
  session.finish();
  device->synchronize();
  EXPECT_EQ(device->gathers, 0U);
  Trainer several(world[0], true, uniform("int8"));
  several.step(0);
  EXPECT_GT(several.device->gathers, 0U);
}

TEST(DeviceSession, BroadcastsAndCompares) {
  const auto results = on_ranks(3, [](const auto& transport) {
    Trainer trainer(transport, true, uniform("int8"), {.compare_ranks_every = 1});
    trainer.backward(0);
    std::vector<View> values;
    for (TypedGradient& gradient : trainer.gradients) {
      values.push_back(gradient.view());
    }
    trainer.session.broadcast(values, 1);
    trainer.optimise();
    trainer.device->synchronize();
    std::string all = trainer.seen;
    trainer.step(0);
    return all;
  });
  EXPECT_TRUE(results[0] == results[1]);
  EXPECT_TRUE(results[2] == results[1]);
}

}  // namespace
}  // namespace gradwire::test
