// Counts what a step of a session over a device costs the host: kernels where they are launched, groups and messages in
// NCCL's calls, records of events and waits for them in CUDA's. Nothing runs, so one rank stands for all.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "exchange/stream/device_forecast.hpp"
#include "gradwire/policy.hpp"
#include "nccl_preload/fake_nccl.hpp"
#include "plan/plan.hpp"
#include "session/device/device_runner.hpp"
#include "simt_emulator.hpp"
#include "tests/device/counted_device.hpp"

namespace gradwire::test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

struct Step {
  int world = 2;
  std::uint64_t bytes = kMiB;
  std::string policy = {};  // lines of [defaults]
  DType dtype = DType::f32;
  std::size_t tensors = 1;
  bool feedback = false;
  bool weighted = false;
  bool scaled = false;
};

struct Counts {
  std::size_t kernels = 0;
  long groups = 0;
  long sends = 0;
  std::uint64_t events = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
  friend void PrintTo(const Counts& counts, std::ostream* out) {
    *out << counts.kernels << " kernels, " << counts.groups << " groups, " << counts.sends << " sends, "
         << counts.events << " records and waits";
  }
};

/// Answers for all other ranks what this one says.
class Agreeing final : public exchange::Peers {
 public:
  explicit Agreeing(int world) : world_(static_cast<std::size_t>(world)) {}
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& mine, const std::string& /*what*/) override {
    return std::vector<std::string>(world_, mine);
  }

 private:
  std::size_t world_;
};

/// The kernels of the last step that was counted, in order.
std::vector<std::string> launched;

/// One rank's runner, with a plan of one bucket.
class Job {
 public:
  explicit Job(const Step& step, int rank = 0)
      : step_(step),
        plan_(plan_of(step)),
        runner_(make_counted_device(rank, step.world), std::make_unique<Agreeing>(step.world), {}) {
    EXPECT_EQ(plan_.buckets.size(), 1U);
    runner_.agree(plan_, step.weighted, 0, {}, {});
  }

  [[nodiscard]] session::DeviceRunner& runner() { return runner_; }
  [[nodiscard]] session::DeviceSteps& steps() { return *runner_.device(); }
  void start() {
    std::vector<session::TensorMemory> tensors;
    for (const plan::TensorPlan& tensor : plan_.tensors) {
      tensors.push_back({.gradient = {memory_.data(), tensor.info.count, tensor.info.dtype},
                         .zero = false,
                         .scale = step_.scaled ? memory_.data() : nullptr});
    }
    runner_.start(plan_, plan_.buckets[0], tensors, {.weighted = step_.weighted, .weight = step_.weighted ? 2.0 : 1.0});
  }

 private:
  static plan::Plan plan_of(const Step& step) {
    const Policy policy =
        Policy::parse("[defaults]\ncodec = \"int8\"\nsmall = \"off\"\nalgorithm = \"two_shot\"\n" +
                      std::string("error_feedback = \"") + (step.feedback ? "on" : "off") + "\"\n" + step.policy);
    std::vector<TensorInfo> infos;
    for (std::size_t i = 0; i < step.tensors; ++i) {
      infos.push_back({.name = "tensor" + std::to_string(i),
                       .count = step.bytes / element_bytes(step.dtype) / step.tensors,
                       .dtype = step.dtype,
                       .scaled = step.scaled});
    }
    return plan::make_plan(policy, infos,
                           {.world_size = step.world, .checksum = false, .nodes = {}, .knows_tiers = false});
  }

  Step step_;
  plan::Plan plan_;
  session::DeviceRunner runner_;
  std::vector<float> memory_ = std::vector<float>(1);  // nothing is read or written
};

Counts count(const Step& step, int rank = 0) {
  Job job(step, rank);
  launched.clear();
  emulator::note_launches(&launched);
  const auto now = [] {
    return Counts{
        .groups = fake_nccl_calls("ncclGroupEnd"), .sends = fake_nccl_calls("ncclSend"), .events = event_calls()};
  };
  const Counts before = now();
  job.start();
  static_cast<void>(job.steps().end_step(false));
  const Counts after = now();
  emulator::note_launches(nullptr);
  return {launched.size(), after.groups - before.groups, after.sends - before.sends, after.events - before.events};
}

// Mutations tried: a shard has at least two chunks; encoders are launched one by one; a sum opens its own frame.
TEST(DeviceCounts, OneTensorByInt8TakesSixKernelsAndTwoGroupsAtAnyNumberOfRanks) {
  for (const int world : {2, 4, 8, 64}) {
    for (const std::uint64_t mib : {1, 25}) {
      for (const int rank : {0, world / 2, world - 1}) {
        SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(world) + ", " + std::to_string(mib) +
                     " MiB");
        const Counts counts = count({.world = world, .bytes = mib * kMiB}, rank);
        EXPECT_EQ(counts, (Counts{6, 2, 2 * (world - 1), 12}));
        EXPECT_EQ(launched, (std::vector<std::string>{"open_frames", "encode_frame", "reduce_frames", "decode_frame",
                                                      "advance_step", "count_nonfinite"}));
      }
    }
  }
}

TEST(DeviceCounts, OtherSteps) {
  struct Row {
    const char* what;
    Step step;
    Counts counts;
  };
  const Row rows[] = {
      {"feedback", {.world = 8, .bytes = 25 * kMiB, .feedback = true}, {6, 2, 14, 12}},
      {"feedback", {.world = 64, .bytes = 25 * kMiB, .feedback = true}, {6, 2, 126, 12}},
      {"weights", {.world = 8, .bytes = 25 * kMiB, .weighted = true}, {8, 2, 21, 12}},
      {"weights and feedback", {.world = 64, .bytes = 25 * kMiB, .feedback = true, .weighted = true}, {8, 2, 189, 12}},
      {"bf16", {.world = 8, .bytes = 25 * kMiB, .dtype = DType::bf16}, {6, 2, 14, 12}},
      {"bf16", {.world = 2, .bytes = 25 * kMiB, .dtype = DType::bf16}, {10, 3, 4, 16}},
      {"second hop", {.world = 8, .bytes = 25 * kMiB, .policy = "second_hop = \"int4\"\n"}, {6, 2, 14, 12}},
      {"second hop", {.world = 64, .bytes = 25 * kMiB, .policy = "second_hop = \"bf16\"\n"}, {6, 2, 126, 12}},
      {"a scale", {.world = 8, .bytes = 25 * kMiB, .scaled = true}, {11, 2, 14, 12}},
      {"a scale", {.world = 64, .bytes = 25 * kMiB, .scaled = true}, {11, 2, 126, 12}},
      {"a scale, feedback", {.world = 8, .bytes = 25 * kMiB, .feedback = true, .scaled = true}, {18, 2, 14, 12}},
      {"12 tensors", {.world = 8, .bytes = kMiB, .tensors = 12}, {8, 2, 14, 12}},
      {"12 tensors", {.world = 64, .bytes = kMiB, .tensors = 12}, {8, 2, 126, 12}},
      {"256 MiB", {.world = 2, .bytes = 256 * kMiB}, {38, 10, 18, 44}},
      {"256 MiB", {.world = 4, .bytes = 256 * kMiB}, {22, 6, 30, 28}},
      {"256 MiB", {.world = 8, .bytes = 256 * kMiB}, {14, 4, 42, 20}},
      {"256 MiB", {.world = 64, .bytes = 256 * kMiB}, {6, 2, 126, 12}},
      {"256 MiB, feedback", {.world = 8, .bytes = 256 * kMiB, .feedback = true}, {14, 4, 42, 20}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(count(row.step, row.step.world / 2), row.counts) << row.what << ", " << row.step.world << " ranks";
  }
}

// What gradwire plan --gpu computes with is what the device is asked for.
TEST(DeviceCounts, TheModelCountsTheSame) {
  for (const int world : {2, 4, 8, 64}) {
    for (const std::uint64_t mib : {1, 25, 256}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool feedback : {false, true}) {
          const exchange::DeviceCluster cluster{.cards = world};
          const exchange::DeviceTimeline::Counts model =
              forecast_device(
                  cluster, exchange::DeviceWay::one_lane,
                  {.count = mib * kMiB / element_bytes(dtype), .dtype = dtype, .codec = "int8", .feedback = feedback})
                  .counts;
          EXPECT_EQ(
              count({.world = world, .bytes = mib * kMiB, .dtype = dtype, .feedback = feedback}),
              (Counts{model.kernels, static_cast<long>(model.groups), static_cast<long>(model.sends), model.events}))
              << world << " ranks, " << mib << " MiB of " << to_string(dtype) << (feedback ? ", feedback" : "");
        }
      }
    }
  }
}

// Mutations tried: a step that has ended is forgotten; it counts as ended when it begins anew.
TEST(DeviceCounts, ABucketWithoutAMarkEndsWithItsStep) {
  std::vector<std::string> names;
  emulator::note_launches(&names);
  Job job({});
  for (int time = 0; time < 2; ++time) {  // the second time as after a load
    job.start();
    EXPECT_FALSE(job.steps().complete(0, 0));
    static_cast<void>(job.steps().end_step(false));
    EXPECT_TRUE(job.steps().complete(0, 0));
    static_cast<void>(job.runner().advance({}));  // sees that the step has ended
    EXPECT_TRUE(job.steps().complete(0, 0));
  }
  emulator::note_launches(nullptr);
}

}  // namespace
}  // namespace gradwire::test
