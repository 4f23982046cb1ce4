// Counts what a step of a session over a device costs the host: kernels where they are launched, groups and messages in
// NCCL's calls, records of events and waits for them in CUDA's. Nothing runs, so one rank stands for all.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

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

Counts count(const Step& step, int rank = 0) {
  const Policy policy = Policy::parse("[defaults]\ncodec = \"int8\"\nerror_feedback = \"off\"\nsmall = \"off\"\n" +
                                      std::string("algorithm = \"two_shot\"\n") + step.policy);
  std::vector<TensorInfo> infos;
  for (std::size_t i = 0; i < step.tensors; ++i) {
    infos.push_back({.name = "tensor" + std::to_string(i),
                     .count = step.bytes / element_bytes(step.dtype) / step.tensors,
                     .dtype = step.dtype,
                     .scaled = step.scaled});
  }
  const plan::Plan plan =
      plan::make_plan(policy, infos, {.world_size = step.world, .checksum = false, .nodes = {}, .knows_tiers = false});
  EXPECT_EQ(plan.buckets.size(), 1U);
  session::DeviceRunner runner(make_counted_device(rank, step.world), std::make_unique<Agreeing>(step.world), {});
  runner.agree(plan, step.weighted, 0, {}, {});
  std::vector<float> memory(1);  // nothing is read or written
  std::vector<session::TensorMemory> tensors;
  for (const TensorInfo& info : infos) {
    tensors.push_back({.gradient = {memory.data(), info.count, info.dtype},
                       .zero = false,
                       .scale = step.scaled ? memory.data() : nullptr});
  }
  launched.clear();
  emulator::note_launches(&launched);
  const auto now = [] {
    return Counts{
        .groups = fake_nccl_calls("ncclGroupEnd"), .sends = fake_nccl_calls("ncclSend"), .events = event_calls()};
  };
  const Counts before = now();
  runner.start(plan, plan.buckets[0], tensors, {.weighted = step.weighted, .weight = step.weighted ? 2.0 : 1.0});
  static_cast<void>(runner.device()->end_step(false));
  const Counts after = now();
  emulator::note_launches(nullptr);
  return {launched.size(), after.groups - before.groups, after.sends - before.sends, after.events - before.events};
}

TEST(DeviceCounts, OneTensorByInt8) {
  struct Row {
    int world;
    std::uint64_t mib;
    std::size_t kernels;
    long groups;
  };
  for (const Row& row : {Row{2, 1, 26, 5},
                         {2, 25, 26, 5},
                         {4, 1, 50, 5},
                         {4, 25, 50, 5},
                         {8, 1, 98, 5},
                         {8, 25, 98, 5},
                         {64, 1, 194, 2},
                         {64, 25, 962, 6}}) {
    const Counts counts = count({.world = row.world, .bytes = row.mib * kMiB});
    std::printf("%2d ranks %2lu MiB: %s\n", row.world, row.mib, ::testing::PrintToString(counts).c_str());
    EXPECT_EQ(counts.kernels, row.kernels) << row.world << " ranks, " << row.mib << " MiB";
    EXPECT_EQ(counts.groups, row.groups) << row.world << " ranks, " << row.mib << " MiB";
  }
}

}  // namespace
}  // namespace gradwire::test
