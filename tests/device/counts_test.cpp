// Counts what a step of a session over a device costs the host: kernels where they are launched, groups and messages in
// NCCL's calls, records of events and waits for them in CUDA's. Nothing runs, so one rank stands for all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "exchange/stream/device_forecast.hpp"
#include "gradwire/nccl.hpp"
#include "gradwire/policy.hpp"
#include "kernels/device/window_job.hpp"
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
  int per_node = 0;  // ranks of a node; not 0: hierarchical
  bool in_windows = false;
  std::size_t buckets = 1;  // of one tensor each, if there are several
  std::string join = {};    // [device] join
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

constexpr long kToConnect = 2;  // sums and gathers that a device makes when it joins a node

/// Owns one rank's runner.
class Job {
 public:
  explicit Job(const Step& step, int rank = 0, const Policy::Device& share = {})
      : step_(step),
        plan_(plan_of(step)),
        runner_(device_of(step, rank, share), std::make_unique<Agreeing>(step.world), {}) {
    EXPECT_EQ(plan_.buckets.size(), step.buckets);
    static_cast<void>(setenv("GRADWIRE_NODE_KERNEL", step.in_windows ? "1" : "0", 1));
    runner_.agree(plan_, step.weighted, 0, {}, {});
  }

  [[nodiscard]] session::DeviceRunner& runner() { return runner_; }
  [[nodiscard]] session::DeviceSteps& steps() { return *runner_.device(); }
  void move_tensors() { memory_ = std::vector<float>(7); }
  void start() {
    std::vector<session::TensorMemory> tensors;
    for (const plan::TensorPlan& tensor : plan_.tensors) {
      tensors.push_back({.gradient = {memory_.data(), tensor.info.count, tensor.info.dtype},
                         .zero = false,
                         .scale = step_.scaled ? memory_.data() : nullptr});
    }
    for (const plan::Bucket& bucket : plan_.buckets) {
      runner_.start(plan_, bucket, tensors, {.weighted = step_.weighted, .weight = step_.weighted ? 2.0 : 1.0});
    }
  }

 private:
  // Every device of a world that fits into a node has windows, which are used only where that is asked for.
  static std::shared_ptr<exchange::StreamDevice> device_of(const Step& step, int rank, const Policy::Device& share) {
    std::shared_ptr<exchange::StreamDevice> device = make_counted_device(rank, step.world, share);
    if (step.world <= static_cast<int>(kernels::kMostWindowRanks)) {
      give_windows(*device, rank, step.world);
    }
    return device;
  }
  static plan::Plan plan_of(const Step& step) {
    const Policy policy = Policy::parse(
        "[defaults]\ncodec = \"int8\"\nsmall = \"off\"\nalgorithm = \"" +
        std::string(step.per_node > 0 ? "hierarchical" : "two_shot") + "\"\nerror_feedback = \"" +
        (step.feedback ? "on" : "off") + "\"\n" + step.policy +
        (step.per_node > 0 ? "[tier]\nranks_per_node = " + std::to_string(step.per_node) + "\n" : "") +
        (step.buckets > 1 ? "[bucket]\nbytes = " + std::to_string(step.bytes / step.buckets) + "\n" : "") +
        (step.join.empty() ? "" : "[device]\njoin = \"" + step.join + "\"\n"));
    std::vector<TensorInfo> infos;
    const std::size_t tensors = std::max(step.tensors, step.buckets);
    for (std::size_t i = 0; i < tensors; ++i) {
      infos.push_back({.name = "tensor" + std::to_string(i),
                       .count = step.bytes / element_bytes(step.dtype) / tensors,
                       .dtype = step.dtype,
                       .scaled = step.scaled});
    }
    return plan::make_plan(policy, infos,
                           {.world_size = step.world,
                            .checksum = false,
                            .nodes = {},
                            .knows_tiers = step.per_node > 0,
                            .node_sums = step.per_node > 0});
  }

  Step step_;
  plan::Plan plan_;
  session::DeviceRunner runner_;
  std::vector<float> memory_ = std::vector<float>(1);  // nothing is read or written
};

/// The counts of a step, and its launches in order. Where there are several tensors, the table of them was written by a
/// step before.
struct Counted {
  Counts counts;
  std::vector<emulator::NotedLaunch> launches;
  std::vector<std::string> kernels;
};

Counted count(const Step& step, int rank = 0, const Policy::Device& share = {}) {
  Job job(step, rank, share);
  if (step.tensors > 1) {
    const emulator::LaunchNotes none;
    job.start();
    static_cast<void>(job.steps().end_step(false));
  }
  const emulator::LaunchNotes notes;
  const auto now = [] {
    return Counts{
        .groups = fake_nccl_calls("ncclGroupEnd"), .sends = fake_nccl_calls("ncclSend"), .events = event_calls()};
  };
  const Counts before = now();
  job.start();
  static_cast<void>(job.steps().end_step(false));
  const Counts after = now();
  return {
      {notes.launches().size(), after.groups - before.groups, after.sends - before.sends, after.events - before.events},
      notes.launches(),
      notes.kernels()};
}

// Mutations tried: a shard has at least two chunks; encoders are launched one by one; a sum opens its own frame.
TEST(DeviceCounts, OneTensorByInt8TakesSixKernelsAndTwoGroupsAtAnyNumberOfRanks) {
  struct Size {
    int world;
    std::uint64_t mib;
  };
  for (const auto [world, most] : {Size{2, 32}, Size{4, 64}, Size{8, 25}, Size{64, 25}}) {
    for (const std::uint64_t mib : {std::uint64_t{1}, std::uint64_t{25}, most}) {
      for (const int rank : {0, world / 2, world - 1}) {
        SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(world) + ", " + std::to_string(mib) +
                     " MiB");
        const Counted counted = count({.world = world, .bytes = mib * kMiB}, rank);
        EXPECT_EQ(counted.counts, (Counts{6, 2, 2 * (world - 1), 12}));
        EXPECT_EQ(counted.kernels, (std::vector<std::string>{"open_frames", "encode_frame", "reduce_frames",
                                                             "decode_frame", "advance_step", "count_nonfinite"}));
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
      {"12 tensors", {.world = 8, .bytes = kMiB, .tensors = 12}, {6, 2, 14, 12}},
      {"12 tensors", {.world = 64, .bytes = kMiB, .tensors = 12}, {6, 2, 126, 12}},
      {"12 tensors, feedback", {.world = 8, .bytes = kMiB, .tensors = 12, .feedback = true}, {6, 2, 14, 12}},
      {"12 tensors, weights", {.world = 8, .bytes = kMiB, .tensors = 12, .weighted = true}, {8, 2, 21, 12}},
      {"12 tensors, bf16", {.world = 8, .bytes = kMiB / 2, .dtype = DType::bf16, .tensors = 12}, {6, 2, 14, 12}},
      {"12 tensors, a scale", {.world = 8, .bytes = kMiB, .tensors = 12, .scaled = true}, {14, 2, 14, 12}},
      {"256 MiB", {.world = 2, .bytes = 256 * kMiB}, {34, 9, 16, 40}},
      {"256 MiB", {.world = 4, .bytes = 256 * kMiB}, {18, 5, 24, 24}},
      {"256 MiB", {.world = 8, .bytes = 256 * kMiB}, {10, 3, 28, 16}},
      {"256 MiB", {.world = 64, .bytes = 256 * kMiB}, {6, 2, 126, 12}},
      {"more than 2^31 elements", {.world = 8, .bytes = (std::uint64_t{8} << 30) + kMiB}, {1466, 62, 854, 252}},
      {"256 MiB, feedback", {.world = 8, .bytes = 256 * kMiB, .feedback = true}, {10, 3, 28, 16}},
      {"tiers, weights", {.world = 64, .bytes = 25 * kMiB, .weighted = true, .per_node = 8}, {9, 4, 77, 18}},
      {"tiers, bf16", {.world = 64, .bytes = 25 * kMiB, .dtype = DType::bf16, .per_node = 8}, {7, 4, 14, 18}},
      {"tiers, 12 tensors", {.world = 64, .bytes = kMiB, .tensors = 12, .per_node = 8}, {7, 4, 14, 18}},
      {"tiers, a scale", {.world = 64, .bytes = 25 * kMiB, .scaled = true, .per_node = 8}, {9, 4, 14, 18}},
      {"tiers, 64 MiB", {.world = 64, .bytes = 64 * kMiB, .per_node = 8}, {10, 8, 28, 32}},
      {"tiers, 256 MiB", {.world = 64, .bytes = 256 * kMiB, .per_node = 8}, {14, 12, 42, 46}},
      {"tiers, 256 MiB", {.world = 16, .bytes = 256 * kMiB, .per_node = 8}, {14, 12, 6, 46}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(count(row.step, row.step.world / 2).counts, row.counts) << row.what << ", " << row.step.world << " ranks";
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
              count({.world = world, .bytes = mib * kMiB, .dtype = dtype, .feedback = feedback}).counts,
              (Counts{model.kernels, static_cast<long>(model.groups), static_cast<long>(model.sends), model.events}))
              << world << " ranks, " << mib << " MiB of " << to_string(dtype) << (feedback ? ", feedback" : "");
        }
      }
    }
  }
}

// A call that exceeds the windows' slots is a series of kernels.
TEST(DeviceCounts, TheModelCountsTheSameInWindows) {
  for (const int world : {2, 4, 8, 32}) {
    for (const std::uint64_t mib : {1, 25, 34, 256}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool feedback : {false, true}) {
          const exchange::DeviceTimeline::Counts model =
              forecast_device(
                  {.cards = world}, exchange::DeviceWay::fused,
                  {.count = mib * kMiB / element_bytes(dtype), .dtype = dtype, .codec = "int8", .feedback = feedback})
                  .counts;
          const Step step{
              .world = world, .bytes = mib * kMiB, .dtype = dtype, .feedback = feedback, .in_windows = true};
          EXPECT_EQ(count(step).counts, (Counts{model.kernels, 0, 0, model.events}))
              << world << " ranks, " << mib << " MiB of " << to_string(dtype) << (feedback ? ", feedback" : "");
        }
      }
    }
  }
}

TEST(DeviceCounts, TheModelCountsTheSameInTiers) {
  for (const auto& [nodes, per_node] : {std::pair{2, 2}, std::pair{2, 8}, std::pair{8, 8}}) {
    for (const std::uint64_t mib : {1, 25, 256}) {
      for (const bool feedback : {false, true}) {
        const exchange::DeviceCluster cluster{.nodes = nodes, .cards = per_node};
        const exchange::DeviceTimeline::Counts model =
            forecast_device(cluster, exchange::DeviceWay::tiers,
                            {.count = mib * kMiB / sizeof(float), .codec = "int8", .feedback = feedback})
                .counts;
        const Step step{.world = nodes * per_node, .bytes = mib * kMiB, .feedback = feedback, .per_node = per_node};
        EXPECT_EQ(count(step).counts, (Counts{model.kernels, static_cast<long>(model.groups),
                                              static_cast<long>(model.sends), model.events}))
            << nodes << " x " << per_node << ", " << mib << " MiB" << (feedback ? ", feedback" : "");
      }
    }
  }
}

TEST(DeviceCounts, OneTensorInTiersTakesSixKernelsAndFourGroupsAtAnyNumberOfNodes) {
  for (const auto& [nodes, per_node] : {std::pair{2, 2}, std::pair{2, 8}, std::pair{8, 8}}) {
    for (const std::uint64_t mib : {1, 25}) {
      for (const bool feedback : {false, true}) {
        const Step step{.world = nodes * per_node, .bytes = mib * kMiB, .feedback = feedback, .per_node = per_node};
        for (const int rank : {0, step.world / 2 + 1, step.world - 1}) {
          SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(nodes) + " x " +
                       std::to_string(per_node) + ", " + std::to_string(mib) + " MiB");
          const long scatters = fake_nccl_calls("ncclReduceScatter");
          const long gathers = fake_nccl_calls("ncclAllGather");
          const Counted counted = count(step, rank);
          EXPECT_EQ(counted.counts, (Counts{6, 4, 2 * (nodes - 1), 18}));
          EXPECT_EQ(counted.kernels, (std::vector<std::string>{"open_frames", "encode_frame", "reduce_frames",
                                                               "decode_frame", "advance_step", "count_nonfinite"}));
          EXPECT_EQ(fake_nccl_calls("ncclReduceScatter") - scatters, 1 + kToConnect);
          EXPECT_EQ(fake_nccl_calls("ncclAllGather") - gathers, 1 + kToConnect);
        }
      }
    }
  }
}

// With int8 an element and card send .22 bytes to other nodes on 8 x 8, where every card of a node sends as much.
TEST(DeviceCounts, BytesBetweenNodes) {
  for (const int rank : {0, 21, 63}) {
    Job job({.world = 64, .bytes = 25 * kMiB, .per_node = 8}, rank);
    const emulator::LaunchNotes notes;
    job.start();
    static_cast<void>(job.steps().end_step(false));
    const Statistics sent = job.runner().totals();
    const double elements = 25.0 * kMiB / sizeof(float);
    EXPECT_NEAR(static_cast<double>(sent.bytes_inter) / elements, .22, .002);
    EXPECT_EQ(sent.bytes_inter + sent.bytes_intra, sent.bytes_sent);
  }
}

TEST(DeviceCounts, InsideANodeABucketIsOneLaunch) {
  const std::vector<std::string> one{"reduce_windows", "advance_step", "count_nonfinite"};
  for (const int world : {2, 4, 8}) {
    for (const bool feedback : {false, true}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Step step{
            .world = world, .bytes = 25 * kMiB / 2, .dtype = dtype, .feedback = feedback, .in_windows = true};
        const Counted counted = count(step, world / 2);
        EXPECT_EQ(counted.counts, (Counts{3, 0, 0, 5})) << world << " ranks";
        EXPECT_EQ(counted.kernels, one);
      }
    }
  }
  const std::pair<int, std::size_t> launches[] = {{2, 8}, {4, 4}, {8, 2}};
  for (const auto& [world, kernels] : launches) {
    EXPECT_EQ(count({.world = world, .bytes = 256 * kMiB, .in_windows = true}).counts, (Counts{kernels + 2, 0, 0, 5}));
  }
  EXPECT_EQ(count({.world = 8, .bytes = kMiB, .tensors = 12, .in_windows = true}).counts, (Counts{3, 0, 0, 5}));
  // The longest chunk fits into a slot.
  EXPECT_EQ(count({.world = 2, .bytes = 33 * kMiB, .in_windows = true}).counts, (Counts{3, 0, 0, 5}));
  EXPECT_EQ(count({.world = 8, .bytes = kMiB, .weighted = true, .in_windows = true}).counts, (Counts{8, 2, 21, 12}));
}

// The host's time by the model: 3 us a kernel, 17.5 a group, .3 a message, .7 an event. docs/how-to/gpu.md has the
// times of 40 buckets. Mutation tried: messages of buckets are not put together.
TEST(DeviceCounts, SmallBucketsThatAreJoinedAreOneCall) {
  const auto microseconds = [](const Counts& counts) {
    return 3.0 * static_cast<double>(counts.kernels) + 17.5 * static_cast<double>(counts.groups) +
           0.3 * 2 * static_cast<double>(counts.sends) + 0.7 * static_cast<double>(counts.events);
  };
  const Step alone{.world = 8, .bytes = 40 * kMiB, .buckets = 40};
  EXPECT_NEAR(microseconds(count(alone).counts), 1738, 1);
  for (const bool feedback : {false, true}) {
    for (const int rank : {0, 3, 7}) {
      Step step = alone;
      step.feedback = feedback;
      step.join = "64MiB";
      const Counted all = count(step, rank);
      // A list of jobs is written by launches of 480 words each.
      std::vector<std::string> kernels = all.kernels;
      const auto writes = std::count(kernels.begin(), kernels.end(), "write_words");
      std::erase(kernels, "write_words");
      EXPECT_EQ(kernels, (std::vector<std::string>{"open_listed", "encode_listed", "reduce_listed", "decode_listed",
                                                   "advance_step", "count_nonfinite"}));
      EXPECT_EQ(writes, 10);
      // Each bucket follows the caller's stream, which takes an event and a wait for it.
      EXPECT_EQ(all.counts, (Counts{16, 2, 14, 12 + 2 * 39}));
      EXPECT_NEAR(microseconds(all.counts), 154, 1);
      step.join = "8MiB";
      EXPECT_LE(microseconds(count(step, rank).counts), 600);
      EXPECT_EQ(count(step, rank).counts.groups, 6);
    }
  }
}

// Mutation tried: a table is not written again where addresses have changed.
TEST(DeviceCounts, TheTableOfTensorsIsWrittenWhereItHasChanged) {
  Job job({.world = 8, .tensors = 300});
  const auto writes = [&] {
    const emulator::LaunchNotes notes;
    job.start();
    static_cast<void>(job.steps().end_step(false));
    const std::vector<std::string> kernels = notes.kernels();
    EXPECT_EQ(std::count(kernels.begin(), kernels.end(), "gather"), 0);
    EXPECT_EQ(std::count(kernels.begin(), kernels.end(), "scatter"), 0);
    return std::count(kernels.begin(), kernels.end(), "write_words");
  };
  EXPECT_EQ(writes(), 2);
  EXPECT_EQ(writes(), 0);
  job.move_tensors();
  EXPECT_EQ(writes(), 2);
  EXPECT_EQ(writes(), 0);
}

// Mutations tried: a step that has ended is forgotten; it counts as ended when it begins anew.
TEST(DeviceCounts, ABucketWithoutAMarkEndsWithItsStep) {
  const emulator::LaunchNotes notes;
  Job job({});
  for (int time = 0; time < 2; ++time) {  // the second time as after a load
    job.start();
    EXPECT_FALSE(job.steps().complete(0, 0));
    static_cast<void>(job.steps().end_step(false));
    EXPECT_TRUE(job.steps().complete(0, 0));
    static_cast<void>(job.runner().advance({}));  // sees that the step has ended
    EXPECT_TRUE(job.steps().complete(0, 0));
  }
}

// The emulator has at most two blocks of a kernel. Mutations tried: the bound is not looked at; streams have priority
// either way.
TEST(DeviceCounts, APolicyBoundsBlocksAndSetsThePriority) {
  const Step step{.world = 8, .bytes = kMiB, .feedback = true, .weighted = true, .scaled = true};
  const auto most_blocks = [&](const Policy::Device& share) {
    std::uint32_t most = 0;
    for (const emulator::NotedLaunch& launch : count(step, 0, share).launches) {
      most = std::max(most, launch.blocks);
    }
    return most;
  };
  static_cast<void>(take_stream_priorities());
  EXPECT_EQ(most_blocks({}), 2U);
  EXPECT_EQ(take_stream_priorities(), (std::vector<int>{-5, -5}));
  EXPECT_EQ(most_blocks({.blocks = 1, .high_priority = false}), 1U);
  EXPECT_EQ(take_stream_priorities(), (std::vector<int>{0, 0}));
}

// Mutation tried: the session's device does not get the policy's table.
TEST(DeviceCounts, ASessionOverNcclFollowsItsPolicy) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, 1, {}, 0), ncclSuccess);
  const emulator::LaunchNotes notes;
  static_cast<void>(take_stream_priorities());
  { const Session session = nccl::make_session(comm, nullptr, Policy::parse("[device]\npriority = \"normal\"\n")); }
  EXPECT_EQ(take_stream_priorities(), (std::vector<int>{0, 0}));
  { const Session session = nccl::make_session(comm, nullptr, Policy()); }
  EXPECT_EQ(take_stream_priorities(), (std::vector<int>{-5, -5}));
}

}  // namespace
}  // namespace gradwire::test
