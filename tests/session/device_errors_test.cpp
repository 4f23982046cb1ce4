// Tests sessions over device memory when something goes wrong on a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "device_model.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

TEST(DeviceErrors, AFrameThatArrivesDamagedComesToLightInALaterCall) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
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
    Trainer trainer(transport, true, uniform("int8"));
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
    Trainer trainer(transport, true, uniform("int8"), {.timeout = std::chrono::milliseconds(20)});
    trainer.ready_all();
    trainer.session.finish();  // the device is not run before
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const Error error = error_of([&] { trainer.ready_all(); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr("step 0"));
  });
}

TEST(DeviceErrors, MemoryOfAnotherPlaceIsNamed) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
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
    Trainer trainer(transport, true, uniform("int8"));
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
    Trainer trainer(transport, true, uniform("int8"), {}, std::size_t{100} << 10);
    const Error error = error_of([&] { trainer.step(0); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(error.what(), HasSubstr("bytes are in use): the host device is full"));
  });
}

TEST(DeviceErrors, OptionsThatADeviceHasNotAreRefused) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    for (const SessionOptions& options : {SessionOptions{.checksum = true}, SessionOptions{.measure_error = true}}) {
      EXPECT_EQ(error_of([&] { Trainer(transport, true, uniform("int8"), options); }).code(), ErrorCode::unsupported);
    }
  });
}

// Ranks look at gradients on the device, agree, and change nothing.
TEST(DeviceErrors, AStepWithNanIsSkippedOnEveryRank) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("topk(5%)+int8"), {.nonfinite = Nonfinite::skip});
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

// Unless such steps are skipped, a NaN in a step is known only once the step has run.
TEST(DeviceErrors, NanInAResultIsReportedWhenItIsKnown) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
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

// However far the device is when the host asks, no step is missed, and none is reported twice. Mutation tried: the host
// clears the kernels' notes, which the rest of the step writes again.
TEST(DeviceErrors, NanIsReportedOnceHoweverFarTheDeviceIs) {
  for (std::size_t operations = 0; operations < 60; operations += 4) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Trainer trainer(transport, true, uniform("int8"));
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
    Trainer trainer(transport, true, uniform(transport->rank() == 0 ? "int8" : "int4"));
    trainer.step(0);
  });
  for (const auto& thrown : errors) {
    ASSERT_TRUE(thrown);
    const Error error = error_of([&] { std::rethrow_exception(thrown); });
    EXPECT_THAT(error.what(), HasSubstr("ranks disagree about what to reduce"));
    EXPECT_THAT(error.what(), HasSubstr("int4"));
  }
}

// Answers for rank 1, which has said what rank 0 says except for one line, `theirs`.
class OtherBuild final : public exchange::Peers {
 public:
  explicit OtherBuild(std::string theirs) : theirs_(std::move(theirs)) {}
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& mine, const std::string& /*what*/) override {
    const std::size_t begin = mine.find("chunks on devices: ");
    if (begin == std::string::npos) {
      return {mine, "another fingerprint"};
    }
    const std::size_t end = mine.find('\n', begin) + 1;
    return {mine, mine.substr(0, begin) + theirs_ + mine.substr(end)};
  }

 private:
  std::string theirs_;
};

// Mutation tried: the rule of chunks is not in the text.
TEST(DeviceErrors, ABuildThatCutsOtherChunksIsRefused) {
  const auto error_with = [](const std::string& theirs) {
    const auto world = make_inproc_world(2);
    session::DeviceRunner runner(std::make_shared<HostDevice>(world[0]), std::make_unique<OtherBuild>(theirs), {});
    const plan::Plan plan = plan::make_plan(uniform("int8"), {{.name = "tensor", .count = 100, .dtype = DType::f32}},
                                            {.world_size = 2, .checksum = false, .nodes = {}, .knows_tiers = false});
    const Error error = error_of([&] { runner.agree(plan, false, 0, {}, {}); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    return std::string(error.what());
  };
  EXPECT_THAT(
      error_with("chunks on devices: 4194304 bytes, at least 1 a shard\n"),
      HasSubstr("chunks on devices: rank 0 has 4456448 bytes, at least 1 a shard, rank 1 has 4194304 bytes, at least "
                "1 a shard; run the same version of gradwire on every rank"));
  EXPECT_THAT(error_with(""), HasSubstr("run the same version of gradwire"));
}

// The test tries twice, since the first refusal must not leave a plan that then runs as "step".
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
