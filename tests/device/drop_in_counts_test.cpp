// Counts what a group of calls costs the host under the drop-in for NCCL: kernels where they are launched, groups and
// messages in NCCL's calls. Nothing runs, so one rank stands for all, and its words are the answers of the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "drop_in/device_calls.hpp"
#include "gradwire/policy.hpp"
#include "nccl_preload/fake_nccl.hpp"
#include "simt_emulator.hpp"
#include "tests/device/counted_device.hpp"

namespace gradwire::test {
namespace {

using namespace drop_in;  // NOLINT(google-build-using-namespace)

constexpr std::uint64_t kMiB = 1 << 20;

class NoPort final : public ExchangePort {
 public:
  void begin(std::span<const std::uint32_t> /*mine*/, void* /*stream*/) override {}
  [[nodiscard]] bool arrived() override { return true; }
  void finish(std::span<std::uint32_t> largest, std::chrono::milliseconds /*timeout*/) override {
    std::fill(largest.begin(), largest.end(), DeviceExchange::kNoValue);
  }
  void meet(void* /*stream*/) override {}
};

class NoClock final : public DeviceClock {
 public:
  [[nodiscard]] Mark mark(void* /*stream*/) override { return 0; }
  [[nodiscard]] bool reached(Mark /*mark*/) override { return true; }
  [[nodiscard]] std::optional<double> seconds(Mark /*begin*/, Mark /*end*/) override { return std::nullopt; }
  void drop(Mark /*mark*/) noexcept override {}
};

class Heap final : public memory::ArenaSource {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override {
    return static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{memory::Arena::kAlignment}, std::nothrow));
  }
  void free(std::byte* slab) noexcept override {
    ::operator delete[](slab, std::align_val_t{memory::Arena::kAlignment});
  }
  [[nodiscard]] std::string why() const override { return {}; }
};

// All other ranks say what this one says, but for the number of their process.
class Echo final : public RankGather {
 public:
  void put(std::span<const std::byte> mine) override { mine_.assign(mine.begin(), mine.end()); }
  void post() override {}
  void take(std::span<std::byte> all, std::chrono::milliseconds /*timeout*/) override {
    for (std::size_t rank = 0; rank * mine_.size() < all.size(); ++rank) {
      std::byte* const answer = all.data() + rank * mine_.size();
      std::copy(mine_.begin(), mine_.end(), answer);
      if (mine_.size() > sizeof(RankSettings)) {  // the agreement
        answer[sizeof(RankSettings)] ^= static_cast<std::byte>(rank);
      }
    }
  }

 private:
  std::vector<std::byte> mine_;
};

class CountedLink final : public DeviceLink {
 public:
  CountedLink(int rank, int world_size) : device_(make_counted_device(rank, world_size)) {}

  [[nodiscard]] exchange::StreamDevice& device() noexcept override { return *device_; }
  void set_caller(void* /*stream*/) override {}
  void begin_run(bool /*captured*/) override {}
  void end_run(bool /*captured*/) override {}
  [[nodiscard]] RankGather& gather() noexcept override { return gather_; }
  [[nodiscard]] ExchangePort& exchange_port() noexcept override { return port_; }
  [[nodiscard]] DeviceClock& clock() noexcept override { return clock_; }
  [[nodiscard]] memory::Arena& lasting() noexcept override { return lasting_; }
  [[nodiscard]] memory::ArenaSource& loans() noexcept override { return heap_; }

 private:
  std::shared_ptr<exchange::StreamDevice> device_;
  Echo gather_;
  NoPort port_;
  NoClock clock_;
  Heap heap_;
  memory::Arena lasting_{heap_, 4096};
};

class NoLibrary final : public DeviceLibrary {
 public:
  [[nodiscard]] int start_group() override { return 0; }
  [[nodiscard]] int end_group() override { return 0; }
  [[nodiscard]] int failed() const noexcept override { return 99; }
  void say(const std::string& text) override { ADD_FAILURE() << text; }
};

struct Counts {
  long groups = 0;
  long sends = 0;
  std::vector<std::string> kernels = {};  // without those that write lists
  std::size_t lists = 0;
};

// Owns one rank's reducer. Nobody reads or writes the buffers.
class Job {
 public:
  Job(const std::string& policy, int rank, int world_size) : world_(world_size) {
    configuration_.mode = Mode::compressing;
    configuration_.node_kernel = false;  // messages are counted here
    configuration_.planner = plan::CallPlanner(Policy::parse("version = 1\n[defaults]\nroles = \"all\"\n" + policy));
    reducer_ = std::make_shared<DeviceReducer>(configuration_, ledger_, std::make_unique<CountedLink>(rank, world_), 1);
    reach_agreement({&reducer_, 1}, library_);
    EXPECT_EQ(reducer_->failure(), "");
  }

  // Makes all-reduces of f32 with these bytes as a group.
  Counts group(const std::vector<std::uint64_t>& sizes) {
    std::vector<DeviceCall> calls;
    for (const std::uint64_t bytes : sizes) {
      float* const buffer = &buffers_[calls.size()];
      const Call call{.function = Function::nccl_all_reduce,
                      .dtype = DType::f32,
                      .reduction = Reduction::sum,
                      .count = bytes / sizeof(float),
                      .world_size = world_};
      calls.push_back({.reducer = reducer_,
                       .call = call,
                       .decided = reducer_->decide(call),
                       .op = "sum",
                       .reduce = {.send = buffer, .receive = buffer, .count = call.count},
                       .bytes = bytes,
                       .forward = [] { return 0; }});
    }
    reducer_->note_other_call();  // the loss
    const long groups = fake_nccl_calls("ncclGroupEnd");
    const long sends = fake_nccl_calls("ncclSend");
    const emulator::LaunchNotes notes;
    EXPECT_EQ(issue(calls, library_), 0) << reducer_->failure();
    Counts counts{.groups = fake_nccl_calls("ncclGroupEnd") - groups,
                  .sends = fake_nccl_calls("ncclSend") - sends,
                  .kernels = notes.kernels()};
    counts.lists = std::erase(counts.kernels, "write_words");
    return counts;
  }
  [[nodiscard]] std::uint64_t residual_bytes() const { return reducer_->residual_bytes(); }

 private:
  const emulator::LaunchNotes notes_;  // no kernel runs
  int world_;
  Configuration configuration_;
  Ledger ledger_;
  NoLibrary library_;
  std::shared_ptr<DeviceReducer> reducer_;
  std::vector<float> buffers_ = std::vector<float>(64);
};

const std::vector<std::string> kOneCall = {"open_listed",   "encode_listed", "reduce_listed",
                                           "decode_listed", "advance_step",  "count_nonfinite"};

// Mutations tried: calls of a group are started one by one; messages of calls are not put together.
TEST(DropInCounts, SmallCallsOfAGroupAreOneCall) {
  for (const int rank : {0, 3, 7}) {
    Job job("codec = \"int8\"\n", rank, 8);
    for (int time = 0; time < 2; ++time) {
      const Counts counts = job.group(std::vector<std::uint64_t>(40, kMiB));
      EXPECT_EQ(counts.kernels, kOneCall);
      EXPECT_EQ(counts.lists, 10U);
      EXPECT_EQ(counts.groups, 2);
      EXPECT_EQ(counts.sends, 14);
    }
  }
}

TEST(DropInCounts, WithFeedbackOnceTheStepIsKnown) {
  Job job("codec = \"int4\"\n", 5, 8);
  Counts counts;
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 0; i < 40; ++i) {
    sizes.push_back(kMiB + 4096 * i);
  }
  for (int step = 0; step < 20; ++step) {
    counts = job.group(sizes);
  }
  EXPECT_GT(job.residual_bytes(), 40 * kMiB);
  EXPECT_EQ(counts.kernels, kOneCall);
  EXPECT_EQ(counts.groups, 2);
  EXPECT_EQ(counts.sends, 14);
}

// The host's cost of calls that are not joined.
TEST(DropInCounts, LargeCallsOfAGroupAreMadeOneByOne) {
  Job job("codec = \"int8\"\n", 0, 8);
  const Counts counts = job.group(std::vector<std::uint64_t>(40, 8 * kMiB));
  EXPECT_EQ(counts.kernels.size(), 40U * 4 + 2);
  EXPECT_EQ(counts.groups, 41);
  EXPECT_EQ(counts.sends, 40 * 14);
}

// Large calls keep their pipeline, and codecs that alternate are two joints.
TEST(DropInCounts, OtherGroups) {
  {
    Job job("codec = \"int8\"\n", 0, 8);
    EXPECT_EQ(job.group(std::vector<std::uint64_t>(3, 25 * kMiB)).sends, 3 * 14);
    const Counts counts = job.group({kMiB, 25 * kMiB, kMiB});
    EXPECT_EQ(counts.groups, 3);
    EXPECT_EQ(counts.sends, 2 * 14) << "small calls need not follow each other";
    EXPECT_EQ(job.group(std::vector<std::uint64_t>(20, 7 * kMiB)).sends, 2 * 14) << "64 MiB are enough";
  }
  Job job("codec = \"int8\"\n[[rule]]\nmax_bytes = \"1MiB\"\ncodec = \"fp8\"\n", 0, 8);
  std::vector<std::uint64_t> sizes;
  for (int i = 0; i < 20; ++i) {
    sizes.push_back(i % 2 == 0 ? kMiB : kMiB + 4096);
  }
  const Counts counts = job.group(sizes);
  EXPECT_EQ(counts.groups, 3) << "their messages share a group";
  EXPECT_EQ(counts.sends, 2 * 14);
}

}  // namespace
}  // namespace gradwire::test
