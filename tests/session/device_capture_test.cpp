// Tests sessions over device memory whose steps are captured into graphs and replayed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_model.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

HostDevice::Work capture(Trainer& trainer) {
  trainer.device->begin_capture();
  trainer.ready_all();
  trainer.session.finish();
  return trainer.device->end_capture();
}

// Replays, and steps between them that are not captured, have the bits of as many plain steps. Mutations tried: the
// step is not advanced; the session does not ask how far the device is; a flush gives residuals back.
TEST(DeviceCapture, ReplaysAdvanceTheStep) {
  const std::pair<const char*, bool> cases[] = {
      {"int8", false}, {"int4", false}, {"topk(5%)+int8", false}, {"int8", true}, {"topk(5%)+int8", true}};
  for (const auto& one : cases) {
    const char* codec = one.first;
    const bool by_scale = one.second;  // a replay reads the scale again
    const auto train = [&](bool captures) {
      return on_ranks(2, [&](const auto& transport) {
        Trainer trainer(transport, true, uniform(codec), {}, ~std::size_t{0}, by_scale);
        std::string all;
        trainer.session.reserve();
        HostDevice::Work graph;
        if (captures) {
          const std::size_t waiting = trainer.device->waiting();
          graph = capture(trainer);
          EXPECT_EQ(trainer.device->waiting(), waiting) << "a capture runs nothing";
          EXPECT_EQ(trainer.session.step(), 0U);
        }
        for (std::uint64_t step = 0; step < 7; ++step) {
          if (step == 4) {
            trainer.session.flush();
          }
          if (captures && step != 3 && step != 4) {
            trainer.replay(step, graph);
          } else {
            trainer.step(step);
          }
          all += trainer.seen;
        }
        trainer.session.flush();
        trainer.step(7);
        EXPECT_EQ(trainer.session.step(), 8U);
        return all + content(trainer.gradients);
      });
    };
    EXPECT_TRUE(train(true) == train(false)) << codec;
  }
}

TEST(DeviceCapture, AllocatesNothing) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("topk(5%)+int8"), {}, ~std::size_t{0}, true);
    trainer.session.reserve();
    const std::uint64_t allocations = trainer.device->allocations;
    static_cast<void>(capture(trainer));
    EXPECT_EQ(trainer.device->allocations, allocations);
  });
}

// reserve() makes room for residuals of every codec, but no step has left any. Mutation tried: reserved room counts as
// held.
TEST(DeviceCapture, AStepByTheLibraryLaunchesNothingForResidualsThatAnotherCodecWouldLeave) {
  const auto launches = [](const Policy& policy) {
    return on_ranks(2, [&](const auto& transport) {
      Trainer trainer(transport, true, policy);
      trainer.session.reserve();
      const std::size_t captured = capture(trainer).operations.size();
      const std::uint64_t before = trainer.device->computed;
      trainer.step(0);
      return std::to_string(captured) + " " + std::to_string(trainer.device->computed - before);
    });
  };
  const auto by_library =
      launches(Policy::parse("[defaults]\ncodec = \"exact\"\nalgorithm = \"dense\"\nsmall = \"off\"\n"));
  EXPECT_EQ(launches(Policy::parse("[defaults]\ncodec = \"auto\"\nsmall = \"off\"\nallow = [\"int4\"]\n")), by_library);
}

TEST(DeviceCapture, WithoutReservationIsAnErrorThatSaysWhatToCall) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
    trainer.device->begin_capture();
    const Error error = error_of([&] { trainer.ready_all(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("call reserve() on every rank before the capture"));
    static_cast<void>(trainer.device->end_capture());
    trainer.step(0);  // the session still works
  });
}

// The reserved memory is not enough: another stage of the warm-up begins, and it needs residuals.
TEST(DeviceCapture, ResidualsAreNotMadeInside) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    const Policy policy = Policy::parse(
        "[defaults]\ncodec = \"topk(5%)+int8\"\nsmall = \"off\"\nwarmup = [ { until_step = 1, codec = \"exact\" } ]\n");
    Trainer trainer(transport, true, policy);
    trainer.session.reserve();
    trainer.step(0);
    trainer.device->begin_capture();
    trainer.ready_all();
  });
  for (const auto& thrown : errors) {  // the rank's own error, or another rank's
    EXPECT_THAT(error_of([&] { std::rethrow_exception(thrown); }).what(),
                HasSubstr("call reserve() on every rank before the capture"));
  }
}

// Larger frames of a later stage are not allocated inside a capture either.
TEST(DeviceCapture, TakesNoMemoryBeyondWhatWasReserved) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    const Policy policy = Policy::parse(
        "deterministic = true\n[defaults]\ncodec = \"exact\"\nsmall = \"off\"\n"
        "warmup = [ { until_step = 1, codec = \"int8\" } ]\n");
    Trainer trainer(transport, true, policy);
    trainer.session.reserve();
    trainer.step(0);
    trainer.device->begin_capture();
    trainer.ready_all();
    trainer.session.finish();
  });
  for (const auto& thrown : errors) {  // the rank's own error, or another rank's
    ASSERT_TRUE(thrown);
    EXPECT_THAT(error_of([&] { std::rethrow_exception(thrown); }).what(),
                HasSubstr("call reserve() on every rank before the capture"));
  }
}

// Mutation tried: save() or step() does not ask how far the device is.
TEST(DeviceCapture, TheStateIsThatOfTheLastReplay) {
  const auto train = [](bool captures) {
    return on_ranks(2, [&](const auto& transport) {
      Trainer trainer(transport, true, uniform("topk(5%)+int8"));
      trainer.session.reserve();
      const HostDevice::Work graph = captures ? capture(trainer) : HostDevice::Work{};
      for (std::uint64_t step = 0; step < 3; ++step) {
        if (captures) {
          trainer.backward(step);
          trainer.device->replay(graph);  // no thread waits for it
        } else {
          trainer.step(step);
        }
      }
      std::string state = trainer.saved();
      EXPECT_EQ(trainer.session.step(), 3U);
      return state;
    });
  };
  EXPECT_TRUE(train(true) == train(false));
}

// The step after the capture belongs to another stage of the warm-up, which keeps residuals, but not in the memory of
// the graph's frames. A flush afterwards shows them.
TEST(DeviceCapture, ReplaysLeaveResidualsOfALaterStageAlone) {
  const auto train = [](bool replays) {
    return on_ranks(2, [&](const auto& transport) {
      const Policy policy = Policy::parse(
          "deterministic = true\n[defaults]\ncodec = \"topk(5%)+int8\"\nsmall = \"off\"\n"
          "warmup = [ { until_step = 1, codec = \"exact\" } ]\n");
      Trainer trainer(transport, true, policy);
      trainer.session.reserve();
      const HostDevice::Work graph = capture(trainer);
      trainer.step(0);
      trainer.step(1);
      if (replays) {
        trainer.backward(2);
        trainer.device->replay(graph);
        trainer.device->synchronize();
      }
      trainer.session.flush();
      trainer.step(3);
      return trainer.seen;
    });
  };
  EXPECT_TRUE(train(true) == train(false));
}

// Residuals are scaled between two replays, which run on the caller's stream.
TEST(DeviceCapture, ALossScaleChangesBetweenReplays) {
  const auto train = [](bool captures) {
    return on_ranks(2, [&](const auto& transport) {
      Trainer trainer(transport, true, uniform("topk(5%)+int8"), {.nonfinite = Nonfinite::propagate});
      trainer.session.reserve();
      const HostDevice::Work graph = captures ? capture(trainer) : HostDevice::Work{};
      for (std::uint64_t step = 0; step < 4; ++step) {
        const double scale = step < 2 ? 64 : 16;
        trainer.session.set_loss_scale(scale);
        trainer.backward(step, scale);
        if (captures) {
          trainer.device->replay(graph);
        } else {
          trainer.ready_all();
          trainer.session.finish();
        }
      }
      trainer.optimise();
      trainer.device->synchronize();
      return trainer.seen;
    });
  };
  EXPECT_TRUE(train(true) == train(false));
}

// Mutation tried: the session frees the device's memory while a replay runs.
TEST(DeviceCapture, ASessionThatEndsWaitsForReplays) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::shared_ptr<HostDevice> device;
    std::vector<TypedGradient> gradients;
    {
      Trainer trainer(transport, true, uniform("int8"));
      device = trainer.device;
      trainer.session.reserve();
      const HostDevice::Work graph = capture(trainer);
      trainer.backward(0);
      device->replay(graph);
      EXPECT_GT(device->waiting(), 0U);
    }
    EXPECT_EQ(device->waiting(), 0U);
  });
}

TEST(DeviceCapture, AStepWithoutElementsJoinsTheCapture) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    auto device = std::make_shared<HostDevice>(transport);
    Session session = session::make_session(std::make_unique<session::DeviceRunner>(device, nullptr, SessionOptions{}),
                                            uniform("int8"), {});
    session.reserve();
    device->begin_capture();
    session.finish();
    const HostDevice::Work graph = device->end_capture();
    device->replay(graph);
    device->replay(graph);
    EXPECT_EQ(session.step(), 2U);
  });
}

TEST(DeviceCapture, OtherCallsMayTakeMemoryAfterwards) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
    trainer.session.reserve();
    static_cast<void>(capture(trainer));
    const std::uint64_t allocations = trainer.device->allocations;
    std::vector<float> large(1 << 20, static_cast<float>(transport->rank()));
    const View values = view(large.data(), large.size());
    trainer.session.broadcast(std::span(&values, 1), 1);
    trainer.device->synchronize();
    EXPECT_GT(trainer.device->allocations, allocations);
    EXPECT_EQ(large, std::vector<float>(large.size(), 1.0F));
  });
}

TEST(DeviceCapture, RefusesWhatOnlyTheHostCanDo) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    const auto message = [&](const SessionOptions& options, const std::function<void(Session&)>& prepare) {
      Trainer trainer(transport, true, uniform("int8"), options);
      prepare(trainer.session);
      trainer.session.reserve();
      trainer.device->begin_capture();
      std::string text = error_of([&] { trainer.ready_all(); }).what();
      static_cast<void>(trainer.device->end_capture());
      trainer.step(0);
      return text;
    };
    EXPECT_THAT(message({}, [](Session& s) { s.set_weight(2); }), HasSubstr("weights"));
    EXPECT_THAT(message({.nonfinite = Nonfinite::skip}, [](Session&) {}), HasSubstr("skip"));
    EXPECT_THAT(message({}, [](Session& s) { s.flush(); }), HasSubstr("flush()"));
    EXPECT_THAT(message({.compare_ranks_every = 1}, [](Session&) {}), HasSubstr("compare_ranks_every"));
    Trainer trainer(transport, true, uniform("int8"));
    trainer.session.reserve();
    trainer.device->begin_capture();
    const Ticket ticket = trainer.session.ready(trainer.gradients[0].id);
    EXPECT_THAT(error_of([&] { static_cast<void>(trainer.session.reserve()); }).what(), HasSubstr("under way"));
    static_cast<void>(ticket);
  });
}

// Mutation tried: only the runner looks, and the session gives up.
TEST(DeviceCapture, RefusesToLookAtWhatHasNotRun) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
    trainer.session.reserve();
    trainer.device->begin_capture();
    EXPECT_THAT(error_of([&] { trainer.session.reserve(); }).what(), HasSubstr("reserve: not while"));
    EXPECT_THAT(error_of([&] { trainer.session.broadcast(trainer.gradients[0].view()); }).what(),
                HasSubstr("broadcast: not while"));
    EXPECT_THAT(error_of([&] { static_cast<void>(trainer.saved()); }).what(), HasSubstr("save: not while"));
    EXPECT_THAT(error_of([&] { trainer.session.set_loss_scale(2); }).what(), HasSubstr("set_loss_scale: not while"));
    Ticket ticket;
    for (const TypedGradient& gradient : trainer.gradients) {
      ticket = trainer.session.ready(gradient.id);
    }
    EXPECT_THAT(error_of([&] { trainer.session.wait(ticket); }).what(), HasSubstr("wait: not while"));
    EXPECT_THAT(error_of([&] { static_cast<void>(trainer.session.done(ticket)); }).what(),
                HasSubstr("done: not while"));
    trainer.session.finish();
    static_cast<void>(trainer.device->end_capture());
    trainer.step(0);
  });
}

}  // namespace
}  // namespace gradwire::test
