// Tests the communication hook of DDP without Torch: its results, its errors, and the hook over a simulated device.
#include "plugins/torch_c10d/hook_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "session/device/device_runner.hpp"
#include "tests/support/host_device.hpp"
#include "tests/torch_c10d/hook_job.hpp"

namespace gradwire::torch_c10d {
namespace {

using testing::HasSubstr;

TEST_F(HookTest, GivesTheMeanWhateverTheBuckets) {
  const std::vector<Values> results = last_of(Policy::uniform("exact"), 3, kRebuilt);
  for (std::size_t p = 0; p < kCounts.size(); ++p) {
    const Values given[] = {gradient(p, 0, 2), gradient(p, 1, 2), gradient(p, 2, 2)};
    for (std::size_t i = 0; i < kCounts[p]; ++i) {
      const double mean = (double{given[0][i]} + double{given[1][i]} + double{given[2][i]}) / 3;
      ASSERT_NEAR(results[p][i], mean, 1e-6) << "parameter " << p << ", element " << i;
    }
  }
}

TEST_F(HookTest, KeepsResidualsWhenBucketsAreRebuilt) {
  const std::vector<Values> same = last_of(feedback("int4"), 6, kFirst);
  EXPECT_EQ(last_of(feedback("int4"), 6, kRebuilt), same);
  EXPECT_NE(last_of(feedback("int4", ErrorFeedback::off), 6, kFirst), same) << "there are no residuals to keep";
}

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(HookTest, AnErrorOfOneRankEndsTheOthers) {
  std::barrier all_have_stepped(3);
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, kFirst, rank, 0);
    all_have_stepped.arrive_and_wait();
    if (rank == 1) {
      engine.abort("its loss is a matter of taste");
    }
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 1); }), HasSubstr("a matter of taste"));
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 2); }), HasSubstr("an earlier backward pass failed"));
  });
}

TEST_F(HookTest, AMistakeOfOneRankEndsTheOthers) {
  std::barrier all_have_stepped(2);
  run(2, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, kFirst, rank, 0);
    all_have_stepped.arrive_and_wait();
    if (rank == 1) {
      engine.post({.first = true, .done = [](const std::exception_ptr&) {}});
    }
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 1); }),
                HasSubstr("began before all buckets of the one before were there"));
  });
}

TEST_F(HookTest, ARankThatEndsInABackwardPassEndsTheOthers) {
  std::barrier all_have_stepped(3);
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, kFirst, rank, 0);
    all_have_stepped.arrive_and_wait();
    if (rank == 1) {
      Values buffer(kCounts[0]);
      engine.post({.first = true,
                   .gradients = {{0, {buffer.data(), kCounts[0], DType::f32}}},
                   .done = [](const std::exception_ptr&) {}});
      engine.close();
      return;
    }
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 1); }),
                HasSubstr("this rank ended during a backward pass"));
  });
}

TEST_F(HookTest, ARankThatCannotBeginIsNamed) {
  const auto engine = make_host_hook_engine(
      {.rank = 0, .world_size = 2, .timeout = 60s, .parameters = parameters(), .store = store_.rendezvous()});
  std::thread other([&] {
    std::this_thread::sleep_for(100ms);  // rank 0 waits in its first backward pass
    tell_of_failure(store_.rendezvous(), 1, "policy.toml:3:1: unknown key");
  });
  EXPECT_THAT(failure_of([&] { step(*engine, kFirst, 0, 0); }), HasSubstr("rank 1: policy.toml:3:1: unknown key"));
  other.join();
}

TEST_F(HookTest, ClosingEndsTheWaitForOtherRanks) {
  const auto engine = make_host_hook_engine(
      {.rank = 0, .world_size = 2, .timeout = 60s, .parameters = parameters(), .store = store_.rendezvous()});
  std::thread waits([&] { EXPECT_THAT(failure_of([&] { step(*engine, kFirst, 0, 0); }), HasSubstr("closed")); });
  std::this_thread::sleep_for(100ms);
  engine->close();
  waits.join();
  EXPECT_THAT(failure_of([&] { step(*engine, kFirst, 0, 1); }), HasSubstr("closed"));
}

TEST_F(HookTest, NamesMistakesInTheOrderOfBuckets) {
  std::barrier all_have_stepped(2);
  run(2, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, kFirst, rank, 0);
    all_have_stepped.arrive_and_wait();
    engine.post({.first = true, .done = [](const std::exception_ptr&) {}});
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 1); }),
                HasSubstr("began before all buckets of the one before were there"));
  });
  run(2, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, {{3}, {1, 0}}, rank, 0);
    all_have_stepped.arrive_and_wait();
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 1); }),
                HasSubstr("\"body.bias\" was in no bucket of the first backward pass"));
  });
}

// A member on a simulated device. It keeps the streams that it was told.
class SimulatedMember final : public HookMember {
 public:
  SimulatedMember(std::shared_ptr<Transport> transport, std::shared_ptr<test::HostDevice>& device,
                  std::vector<void*>& streams)
      : transport_(std::move(transport)), device_(device), streams_(streams) {}

  Session make_session(const HookOptions& options, const transport::Rendezvous& /*store*/,
                       const std::function<void()>& /*go_on*/) override {
    device_ = std::make_shared<test::HostDevice>(transport_);
    const SessionOptions ours = session_options(options);
    return session::make_session(std::make_unique<session::DeviceRunner>(device_, nullptr, ours), options.policy, ours);
  }
  bool enqueues() const noexcept override { return true; }
  void set_stream(void* stream) override { streams_.push_back(stream); }

 private:
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<test::HostDevice>& device_;
  std::vector<void*>& streams_;
};

TEST_F(HookTest, OnADeviceItEnqueuesOnTheStreamOfEachBucket) {
  Policy policy = feedback("int4");
  policy.deterministic = true;
  policy.defaults.algorithm = Algorithm::two_shot;  // the device's
  std::vector<std::vector<Values>> all(2);
  test::run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    std::shared_ptr<test::HostDevice> device;
    std::vector<void*> streams;
    const auto engine = make_hook_engine(
        {.rank = rank, .world_size = 2, .policy = policy, .parameters = parameters(), .store = store_.rendezvous()},
        std::make_unique<SimulatedMember>(transport, device, streams));
    int places[2];
    for (std::uint64_t number = 0; number < 4; ++number) {
      std::vector<Values> buffers(2);
      const Layout& layout = number == 0 ? kFirst : kRebuilt;
      for (std::size_t b = 0; b < 2; ++b) {
        HookBucket bucket{.first = b == 0, .last = b == 1, .stream = &places[b]};
        bucket.gradients =
            fill(buffers[b], layout[b], [&](std::size_t parameter) { return gradient(parameter, rank, number); });
        bool done = false;
        bucket.done = [&, b](const std::exception_ptr& error) {
          EXPECT_FALSE(error);
          done = b == 1;  // the first bucket ends with the last one
        };
        streams.clear();
        engine->post(std::move(bucket));
        EXPECT_EQ(done, b == 1) << "post() does the work itself";
        if (number > 0) {
          EXPECT_EQ(streams, std::vector<void*>(b + 1, &places[b]));
        }
      }
      device->synchronize();
      all[static_cast<std::size_t>(rank)] = buffers;
    }
    EXPECT_GT(device->followed, 0U);
    EXPECT_GT(device->led, 0U);
    EXPECT_THAT(engine->statistics(), HasSubstr("host device"));
  });
  EXPECT_EQ(all[0], all[1]);
  std::vector<Values> on_hosts;
  run(2, policy, [&](int rank, HookEngine& engine) {
    for (std::uint64_t number = 0; number < 4; ++number) {
      const std::vector<Values> results = step(engine, number == 0 ? kFirst : kRebuilt, rank, number);
      if (rank == 0) {
        on_hosts = results;
      }
    }
  });
  EXPECT_EQ(all[0][1], on_hosts[0]) << "the device's bytes are the host's";
}

}  // namespace
}  // namespace gradwire::torch_c10d
