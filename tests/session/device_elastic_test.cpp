// Tests sessions over device memory whose ranks end: they behave as over host memory, with the same bits. The device is
// host memory and runs only while a thread waits for it. The job below reads and writes gradients as the host does, so
// it relies on finish() to wait.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "elastic_deaths.hpp"
#include "elastic_kinds.hpp"
#include "session/device/device_runner.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/host_device.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

constexpr std::int64_t kMoments = std::max(2, 16 / kStepShare);

/// `made` receives the device of the current world.
Session on_device(std::shared_ptr<Processes> processes, const Policy& policy, const SessionOptions& options,
                  std::shared_ptr<HostDevice>* made = nullptr) {
  return session::make_session(
      std::move(processes),
      [=](std::shared_ptr<Transport> transport, std::uint32_t /*epoch*/) {
        auto device = std::make_shared<HostDevice>(std::move(transport));
        device->lets_pass = true;
        if (made != nullptr) {
          *made = device;
        }
        return std::make_unique<session::DeviceRunner>(std::move(device), nullptr, options);
      },
      policy, options);
}

Plan over_device(Plan plan) {
  for (const std::string_view narrow : {"residuals = { dtype = \"bf16\" }\n", "residuals = { dtype = \"int8\" }\n"}) {
    if (const std::size_t at = plan.policy.find(narrow); at != std::string::npos) {
      plan.policy.erase(at, narrow.size());  // devices keep f32
    }
  }
  plan.device_frames = true;
  plan.make_session = [](std::shared_ptr<Processes> processes, const Policy& policy, const SessionOptions& options) {
    return on_device(std::move(processes), policy, options);
  };
  return plan;
}

// Jobs with broadcasts between steps, a flush, and a skipped step.
const Kind kMore[] = {{.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\n", .broadcasts = true, .flushes = 3},
                      {.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"topk(0.05)+int8\"\n",
                       .weighted = true,
                       .skips = 3,
                       .nonfinite = Nonfinite::skip}};

// Mutations tried, each fails here: residuals are not copied; the copy does not come back; ranks believe gathered data
// while messages are aborted.
TEST(DeviceElastic, ADeathAtAnyMomentCostsOneStepAndLeavesNothingBehind) {
  for (const std::span<const Kind> kinds : {kUnderStep, std::span<const Kind>(kMore)}) {
    for_each_at_once(kinds, [](const Kind& kind) {
      SCOPED_TRACE(kind.policy);
      expect_a_death_costs_one_step(over_device(kind.plan()), kMoments);
    });
  }
}

/// Returns a policy by which a device computes the same bits as a host.
std::string alike(const std::string& codec, const std::string& rest = "") {
  return "deterministic = true\n[defaults]\nalgorithm = \"two_shot\"\nsmall = \"off\"\ncodec = \"" + codec + "\"\n" +
         rest;
}

/// Returns whole residuals by tensor and site, since ranges differ where some are zero.
std::map<exchange::ResidualKey, std::vector<float>> residuals_in(const std::string& state) {
  std::istringstream stream(state);
  std::map<exchange::ResidualKey, std::vector<float>> all;
  for (const auto& residual : session::read_state(stream, "test").residuals) {
    for (std::size_t i = 0; i < residual.range.values.size(); ++i) {
      if (residual.range.values[i] != 0) {
        std::vector<float>& values = all[residual.key];
        values.resize(std::max(values.size(), residual.range.offset + i + 1));
        values[residual.range.offset + i] = residual.range.values[i];
      }
    }
  }
  return all;
}

void expect_alike(const Fate& device, const Fate& host) {
  expect_equal(device, host, false);
  EXPECT_TRUE(residuals_in(device.after_change) == residuals_in(host.after_change));
  EXPECT_TRUE(residuals_in(device.state) == residuals_in(host.state));
}

// Rank 2 leaves before step 3. Mutations tried, each fails here: finish() or broadcast() does not wait for the device;
// the next world's device counts steps from 0.
TEST(DeviceElastic, HasTheBitsOfASessionOverHostMemory) {
  const std::string copies = "[elastic]\nreplicate = \"1 step\"\nreplicate_as = \"exact\"\n";
  const Plan plans[] = {{.policy = alike("exact")},
                        {.policy = alike("int8"), .weighted = true},
                        {.policy = alike("int4", copies), .flushes = 1},
                        {.policy = alike("int4", "decay = 0.8\n"), .weighted = true},
                        {.policy = alike("topk(0.05)+int8", copies), .scaled = true},
                        {.policy = alike("topk(0.05)+int8"), .skips = 1, .nonfinite = Nonfinite::skip}};
  for (Plan plan : plans) {
    SCOPED_TRACE(plan.policy);
    plan.leaves_before = {{2, 3}};
    plan.keeps_states = true;
    const std::vector<Fate> host = run(plan);
    const std::vector<Fate> device = run(over_device(plan));
    for (const Id id : {0, 1, 3}) {
      ASSERT_EQ(device[id].first, std::vector<std::uint64_t>{3});
      expect_alike(device[id], host[id]);
      EXPECT_TRUE(device[id].before_change == host[id].before_change);
    }
  }
}

// Mutations tried, each fails here: ranks that were there before receive what a newcomer gets; a newcomer's device
// counts steps from 0, or has not received its data when the newcomer says so.
TEST(DeviceElastic, ASpareTakesThePlaceOfARank) {
  for (const char* codec : {"int4", "topk(0.05)+int8"}) {
    SCOPED_TRACE(codec);
    Plan plan{.policy = alike(codec), .leaves_before = {{2, 3}}, .weighted = true, .keeps_states = true, .spares = 1};
    const auto at_once = [](const Plan& wanted) {
      std::vector<Fate> fates = run(wanted);
      const auto missed = [&] { return fates[0].changes.size() != 1 || fates[0].changes[0].joined.empty(); };
      for (int tries = 1; tries < 5 && missed(); ++tries) {
        fates = run(wanted);  // a busy machine let the spare come a step later
      }
      EXPECT_FALSE(missed());
      return fates;
    };
    const std::vector<Fate> host = at_once(plan);
    const std::vector<Fate> device = at_once(over_device(plan));
    for (const Id id : {0, 1, 3, 4}) {
      expect_alike(device[id], host[id]);
    }
    EXPECT_EQ(device[1].held_after[0], 2) << "a rank's own";
    EXPECT_EQ(device[4].held_after[0], 1) << "this is rank 0's value";
  }
}

TEST(DeviceElastic, AProcessJoins) {
  Plan plan = over_device({.policy = alike("int4"), .steps = 30, .joins_at = {2}, .step_takes = milliseconds(20)});
  const std::vector<Fate> fates = run(plan);
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 2, 3, 4}));
  for (const Fate& fate : fates) {
    EXPECT_EQ(fate.world_size, kRanks + 1);
    expect_equal(fate, fates[0], false);
  }
}

/// Rank 0 of two ranks; the other one makes one step and ends.
class Left {
 public:
  explicit Left(const std::string& codec = "int4") {
    const Policy policy = Policy::parse(alike(codec));
    auto processes = make_inproc_processes(2);
    other_ = std::thread([policy, own = std::move(processes[1])]() mutable { make_one_step(std::move(own), policy); });
    session.emplace(on_device(std::move(processes[0]), policy, {}, &device));
    tensor = session->add("t", view(gradient.data(), gradient.size()));
    session->ready(tensor);
    EXPECT_FALSE(session->finish().repeat);
  }
  ~Left() { other_.join(); }
  Left(const Left&) = delete;
  Left& operator=(const Left&) = delete;

  static void make_one_step(std::shared_ptr<Processes> own, const Policy& policy) {
    std::vector<float> ones(kCount, 1.0F);
    Session other = on_device(std::move(own), policy, {});
    other.ready(other.add("t", view(ones.data(), ones.size())));
    other.finish();
  }
  void wait_until_the_world_is_over() {
    other_.join();
    while (true) {
      try {
        device->poll();
        std::this_thread::sleep_for(milliseconds(1));
      } catch (const Error&) {
        break;
      }
    }
    other_ = std::thread([] {});
  }

  static constexpr std::size_t kCount = 5000;
  std::vector<float> gradient = std::vector<float>(kCount, 0.1F);
  std::shared_ptr<HostDevice> device;
  std::optional<Session> session;
  TensorId tensor{};

 private:
  std::thread other_;
};

// Mutation tried: done() and wait() throw errors that another rank's end causes.
TEST(DeviceElastic, WaitsForBucketsEndWithTheWorld) {
  const Watchdog watchdog("waits for buckets");
  Left left;
  const Ticket ticket = left.session->ready(left.tensor);
  left.session->wait(ticket);
  EXPECT_TRUE(left.session->done(ticket));
  EXPECT_TRUE(left.session->finish().repeat);
  left.gradient.assign(Left::kCount, 0.5F);
  left.session->ready(left.tensor);
  const StepOutcome outcome = left.session->finish();
  EXPECT_FALSE(outcome.repeat);
  EXPECT_EQ(outcome.step, 1U);
  EXPECT_EQ(left.session->world_size(), 1);
}

// Mutation tried: a save reads the device only while its world exists.
TEST(DeviceElastic, StateIsSavedBehindADeathThatNobodyHasToldOf) {
  const Watchdog watchdog("saving behind a death");
  Left left;
  const std::uint64_t held = left.session->residual_bytes();
  EXPECT_GT(held, 0U);
  left.wait_until_the_world_is_over();
  const std::string saved = state_of(*left.session);
  EXPECT_GT(saved.size(), held);
  left.session->set_loss_scale(2);
  EXPECT_FALSE(state_of(*left.session) == saved);
  left.session->ready(left.tensor);
  EXPECT_TRUE(left.session->finish().repeat);
  EXPECT_EQ(left.session->world_size(), 1);
}

// Otherwise leftover work could write to gradients that are computed again. Mutation tried: an undone step waits for
// nothing.
TEST(DeviceElastic, NothingOfAWorldThatIsOverIsLeftToRun) {
  const Watchdog watchdog("the end of a world");
  Left left("exact");
  left.wait_until_the_world_is_over();
  const std::shared_ptr<HostDevice> before = left.device;
  left.session->ready(left.tensor);
  EXPECT_GT(before->waiting(), 0U);
  EXPECT_TRUE(left.session->finish().repeat);
  EXPECT_NE(left.device, before);
  EXPECT_EQ(before->waiting(), 0U);
}

// The step with a NaN is reported by its own finish(), although the other rank ends right after it. Mutation tried:
// finish() reports what it knows before the device has ended.
TEST(DeviceElastic, NaNIsToldByItsStep) {
  auto processes = make_inproc_processes(2);
  std::vector<bool> told[2];
  const auto train = [&](std::size_t rank, std::uint64_t steps) {
    std::vector<float> gradient(5000, 1.0F);
    Session session = on_device(std::move(processes[rank]), Policy::parse(alike("exact")), {});
    const TensorId id = session.add("t", view(gradient.data(), gradient.size()));
    while (session.step() < steps) {
      gradient.assign(gradient.size(), 1.0F);
      gradient[7] = session.step() == 0 && rank == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
      session.ready(id);
      const StepOutcome outcome = session.finish();
      if (!outcome.repeat) {
        told[rank].push_back(outcome.nonfinite);
      }
    }
  };
  std::thread other([&] { train(1, 1); });
  train(0, 3);
  other.join();
  EXPECT_EQ(told[0], (std::vector<bool>{true, false, false}));
  EXPECT_EQ(told[1], std::vector<bool>{true});
}

TEST(DeviceElastic, RefusesWhatItCannot) {
  std::shared_ptr<HostDevice> device;
  std::vector<float> gradient(5000, 1.0F);
  Session session = on_device(make_inproc_processes(1)[0], Policy::parse(alike("int4")), {}, &device);
  const TensorId id = session.add("t", view(gradient.data(), gradient.size()));
  session.reserve();
  device->begin_capture();
  EXPECT_EQ(error_of([&] { session.ready(id); }).code(), ErrorCode::unsupported);
  static_cast<void>(device->end_capture());
  session.ready(id);
  EXPECT_FALSE(session.finish().repeat) << "the session still works";
  float elsewhere = 0;
  device->foreign = {&elsewhere};
  EXPECT_EQ(error_of([&] { static_cast<void>(session.share(view(&elsewhere, 1))); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { session.checkpoint("nowhere", std::vector<ConstView>()); }).code(), ErrorCode::unsupported);
  EXPECT_EQ(error_of([&] { session.restore("nowhere", std::vector<View>()); }).code(), ErrorCode::unsupported);
  Session late = on_device(make_inproc_processes(1)[0], Policy::parse("[defaults]\nsync = { every = 2 }\n"), {});
  std::vector<float> parameter(gradient.size(), 1.0F);
  const TensorId other =
      late.add("t", view(gradient.data(), gradient.size()), view(parameter.data(), parameter.size()));
  EXPECT_EQ(error_of([&] { late.ready(other); }).code(), ErrorCode::unsupported);
}

}  // namespace
}  // namespace gradwire::test
