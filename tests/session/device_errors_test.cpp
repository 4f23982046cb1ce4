// Sessions over device memory: steps captured into graphs, and what goes wrong on a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "device_model.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

Policy deterministic_policy(const std::string& codec) {
  return Policy::parse("deterministic = true\n[defaults]\ncodec = \"" + codec + "\"\nsmall = \"off\"\n");
}

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::internal, "nothing was thrown"};
}

HostDevice::Work capture(Trainer& trainer) {
  trainer.device->begin_capture();
  trainer.ready_all();
  trainer.session.finish();
  return trainer.device->end_capture();
}

// Replays, and steps that are not captured between them, have the bits of as many plain steps. Mutations tried: the
// step is not advanced; the session does not ask how far the device is; residuals given back by a flush.
TEST(DeviceCapture, ReplaysAdvanceTheStep) {
  for (const char* codec : {"int8", "int4", "topk(5%)+int8"}) {
    const auto train = [&](bool captures) {
      return on_ranks(2, [&](const auto& transport) {
        Trainer trainer(transport, true, deterministic_policy(codec));
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
            trainer.backward(step);
            trainer.device->replay(graph);
            trainer.optimise();
            trainer.device->synchronize();
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
    Trainer trainer(transport, true, deterministic_policy("topk(5%)+int8"));
    trainer.session.reserve();
    const std::uint64_t allocations = trainer.device->allocations;
    static_cast<void>(capture(trainer));
    EXPECT_EQ(trainer.device->allocations, allocations);
  });
}

TEST(DeviceCapture, WithoutReservationIsAnErrorThatSaysWhatToCall) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("int8"));
    trainer.device->begin_capture();
    const Error error = error_of([&] { trainer.ready_all(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("call reserve() on every rank before the capture"));
    static_cast<void>(trainer.device->end_capture());
    trainer.step(0);  // nothing is broken
  });
}

// What was reserved before is not enough: another stage of the warm-up begins, and it needs residuals.
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
  for (const auto& thrown : errors) {  // of its own, or another rank's
    EXPECT_THAT(error_of([&] { std::rethrow_exception(thrown); }).what(),
                HasSubstr("call reserve() on every rank before the capture"));
  }
}

// Nor frames, where those of a later stage are larger.
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
  for (const auto& thrown : errors) {  // of its own, or another rank's
    ASSERT_TRUE(thrown);
    EXPECT_THAT(error_of([&] { std::rethrow_exception(thrown); }).what(),
                HasSubstr("call reserve() on every rank before the capture"));
  }
}

// It fails where save() or step() does not ask how far the device is.
TEST(DeviceCapture, TheStateIsThatOfTheLastReplay) {
  const auto train = [](bool captures) {
    return on_ranks(2, [&](const auto& transport) {
      Trainer trainer(transport, true, deterministic_policy("topk(5%)+int8"));
      trainer.session.reserve();
      const HostDevice::Work graph = captures ? capture(trainer) : HostDevice::Work{};
      for (std::uint64_t step = 0; step < 3; ++step) {
        if (captures) {
          trainer.backward(step);
          trainer.device->replay(graph);  // nobody waits
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

// The step after the capture is of another stage of the warm-up, which keeps residuals: not where the graph has its
// frames. A flush afterwards shows them.
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

// Residuals are scaled between two replays, which are on the caller's stream.
TEST(DeviceCapture, ALossScaleChangesBetweenReplays) {
  const auto train = [](bool captures) {
    return on_ranks(2, [&](const auto& transport) {
      Trainer trainer(transport, true, deterministic_policy("topk(5%)+int8"), {.nonfinite = Nonfinite::propagate});
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

// It fails where the session frees the device's memory while a replay runs.
TEST(DeviceCapture, ASessionThatEndsWaitsForReplays) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::shared_ptr<HostDevice> device;
    std::vector<TypedGradient> gradients;
    {
      Trainer trainer(transport, true, deterministic_policy("int8"));
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
    Session session(std::make_unique<session::DeviceRunner>(device, nullptr, SessionOptions{}),
                    deterministic_policy("int8"), {});
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
    Trainer trainer(transport, true, deterministic_policy("int8"));
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
      Trainer trainer(transport, true, deterministic_policy("int8"), options);
      prepare(trainer.session);
      trainer.session.reserve();
      trainer.device->begin_capture();
      const std::string text = error_of([&] { trainer.ready_all(); }).what();
      static_cast<void>(trainer.device->end_capture());
      trainer.step(0);
      return text;
    };
    EXPECT_THAT(message({}, [](Session& s) { s.set_weight(2); }), HasSubstr("weights"));
    EXPECT_THAT(message({.nonfinite = Nonfinite::skip}, [](Session&) {}), HasSubstr("skip"));
    EXPECT_THAT(message({}, [](Session& s) { s.flush(); }), HasSubstr("flush()"));
    EXPECT_THAT(message({.compare_ranks_every = 1}, [](Session&) {}), HasSubstr("compare_ranks_every"));
    Trainer trainer(transport, true, deterministic_policy("int8"));
    trainer.session.reserve();
    trainer.device->begin_capture();
    const Ticket ticket = trainer.session.ready(trainer.gradients[0].id);
    EXPECT_THAT(error_of([&] { static_cast<void>(trainer.session.reserve()); }).what(), HasSubstr("under way"));
    static_cast<void>(ticket);
  });
}

// It fails where only the runner looks and the session gives up.
TEST(DeviceCapture, RefusesToLookAtWhatHasNotRun) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("int8"));
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

TEST(DeviceErrors, AFrameThatArrivesDamagedComesToLightInALaterCall) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("int8"));
    trainer.step(0);
    trainer.device->damage_next_frame = transport->rank() == 1;
    trainer.step(1);
    trainer.step(2);
  });
  ASSERT_TRUE(errors[0] && errors[1]);
  try {
    std::rethrow_exception(errors[1]);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("1 frame(s) arrived damaged on rank 1, one of them from rank 0"));
  }
}

TEST(DeviceErrors, AnErrorOfTheCommunicatorEndsTheSession) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("int8"));
    trainer.step(0);
    trainer.device->asynchronous_error = Error(ErrorCode::transport, "ncclRemoteError: a peer is gone");
    const Error error = error_of([&] { trainer.step(1); });
    EXPECT_EQ(error.code(), ErrorCode::transport);
    EXPECT_THAT(error.what(), HasSubstr("a peer is gone"));
    EXPECT_EQ(error_of([&] { trainer.session.finish(); }).code(), ErrorCode::aborted);
  });
}

TEST(DeviceErrors, AStepThatDoesNotEndTimesOut) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("int8"), {.timeout = std::chrono::milliseconds(20)});
    trainer.ready_all();
    trainer.session.finish();  // nobody lets the device run
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const Error error = error_of([&] { trainer.ready_all(); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr("step 0"));
  });
}

TEST(DeviceErrors, MemoryOfAnotherPlaceIsNamed) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("int8"));
    std::vector<float> elsewhere(200);
    trainer.device->foreign.insert(elsewhere.data());
    const View host = view(elsewhere.data(), elsewhere.size());
    EXPECT_THAT(error_of([&] { static_cast<void>(trainer.session.add("late", host)); }).what(),
                HasSubstr("add: \"late\" is host memory"));
    EXPECT_THAT(error_of([&] { trainer.session.ready(trainer.gradients[2].id, host); }).what(),
                HasSubstr("ready: \"layer1.bias\" is host memory"));
    EXPECT_THAT(error_of([&] { trainer.session.broadcast(host); }).what(), HasSubstr("host memory"));
    trainer.step(0);
  });
}

TEST(DeviceErrors, MemoryThatIsNotAlignedIsNamed) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("int8"));
    std::vector<std::byte> bytes(200 * sizeof(float) + 2);
    const View odd{bytes.data() + 2, 200, DType::f32};
    const Error error = error_of([&] { static_cast<void>(trainer.session.add("late", odd)); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("add: \"late\" is not aligned to the 4 bytes of f32"));
    EXPECT_THAT(error_of([&] { trainer.session.ready(trainer.gradients[2].id, odd); }).what(),
                HasSubstr("ready: \"layer1.bias\" is not aligned"));
    trainer.step(0);
  });
}

TEST(DeviceErrors, AFullDeviceIsAnErrorWithSizes) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("int8"), {}, std::size_t{100} << 10);
    const Error error = error_of([&] { trainer.step(0); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(error.what(), HasSubstr("bytes are in use): the host device is full"));
  });
}

TEST(DeviceErrors, OptionsThatADeviceHasNotAreRefused) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    for (const SessionOptions& options : {SessionOptions{.checksum = true}, SessionOptions{.measure_error = true}}) {
      EXPECT_EQ(error_of([&] { Trainer(transport, true, deterministic_policy("int8"), options); }).code(),
                ErrorCode::unsupported);
    }
  });
}

// Ranks look at gradients on the device, agree, and change nothing.
TEST(DeviceErrors, AStepWithNanIsSkippedOnEveryRank) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("topk(5%)+int8"), {.nonfinite = Nonfinite::skip});
    trainer.step(0);
    const std::string state = trainer.saved();
    for (const std::size_t tensor : {0, 4, 5, 6}) {  // one of each dtype
      fill(trainer.gradients, transport->rank(), 1);
      if (transport->rank() == 1) {
        const double nan = std::numeric_limits<double>::quiet_NaN();
        TypedGradient& gradient = trainer.gradients[tensor];
        run_convert(&nan, DType::f64, gradient.bytes.data() + 4000 * element_bytes(gradient.dtype), gradient.dtype, 1,
                    1, 1);
      }
      const std::string before = content(trainer.gradients);
      trainer.ready_all();
      const StepOutcome outcome = trainer.session.finish();
      trainer.device->synchronize();
      EXPECT_TRUE(outcome.skipped);
      EXPECT_EQ(outcome.nonfinite_ranks, std::vector<int>{1});
      EXPECT_TRUE(content(trainer.gradients) == before);
    }
    EXPECT_FALSE(trainer.step(5).skipped);
    EXPECT_EQ(trainer.session.step(), 6U);
  });
}

// Where nothing is skipped, a step with NaN is known once it has run.
TEST(DeviceErrors, NanInAResultIsReportedWhenItIsKnown) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy("int8"));
    fill(trainer.gradients, transport->rank(), 0);
    const float infinity = std::numeric_limits<float>::infinity();
    std::memcpy(trainer.gradients[0].bytes.data(), &infinity, sizeof infinity);
    trainer.ready_all();
    EXPECT_FALSE(trainer.session.finish().nonfinite) << "the device has not begun";
    trainer.device->synchronize();
    EXPECT_TRUE(trainer.step(1).nonfinite);
    EXPECT_FALSE(trainer.step(2).nonfinite);
  });
}

// However far the device is when the host asks: no step is missed, and none told twice. It fails where the host clears
// what kernels note, since the rest of the step notes it again.
TEST(DeviceErrors, NanIsReportedOnceHoweverFarTheDeviceIs) {
  for (std::size_t operations = 0; operations < 60; operations += 4) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Trainer trainer(transport, true, deterministic_policy("int8"));
      int reported = 0;
      const auto step = [&](std::uint64_t number) {
        trainer.backward(number);
        if (number == 0) {
          float& first = *reinterpret_cast<float*>(trainer.gradients[0].bytes.data());
          trainer.device->call("an overflow", trainer.accesses(true),
                               [&first] { first = std::numeric_limits<float>::infinity(); });
        }
        trainer.ready_all();
        reported += trainer.session.finish().nonfinite ? 1 : 0;
      };
      step(0);
      EXPECT_EQ(reported, 0) << "the device has not begun";
      trainer.device->run_some(operations);
      step(1);
      trainer.device->synchronize();
      step(2);
      trainer.device->synchronize();
      step(3);
      EXPECT_EQ(reported, 1) << operations;
    });
  }
}

TEST(DeviceErrors, RanksWithOtherPlansAreToldSo) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, deterministic_policy(transport->rank() == 0 ? "int8" : "int4"));
    trainer.step(0);
  });
  for (const auto& thrown : errors) {
    ASSERT_TRUE(thrown);
    const Error error = error_of([&] { std::rethrow_exception(thrown); });
    EXPECT_THAT(error.what(), HasSubstr("ranks disagree about what to reduce"));
    EXPECT_THAT(error.what(), HasSubstr("int4"));
  }
}

// Twice, since the first refusal must not leave a plan behind that runs as "step".
TEST(DeviceErrors, OtherSyncModesAreRefused) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true,
                    Policy::parse("[defaults]\nsmall = \"off\"\nsync = { async = true, staleness = 1 }"));
    for (int attempt = 0; attempt < 2; ++attempt) {
      const Error error = error_of([&] { trainer.ready_all(); });
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("over device memory there is no sync but \"step\" yet"));
    }
  });
}

}  // namespace
}  // namespace gradwire::test
