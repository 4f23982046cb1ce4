// Tests stream executors whose calls are kernels over windows: results, residuals and statistics are those of the host
// executor, and calls that have no such kernel are made as before.
#include <gtest/gtest.h>

#include "exchange/stream/dry_run.hpp"
#include "exchange/stream/window_calls.hpp"
#include "kernels/device/window_operations.hpp"
#include "simt_streams.hpp"
#include "tests/exchange/stream_harness.hpp"
#include "tests/support/fake_windows.hpp"

namespace gradwire::test {
namespace {

/// Launches kernels over windows for a stream of its own, and counts everything else.
class WindowBackend final : public exchange::NullBackend {
 public:
  using NullBackend::NullBackend;
  void all_reduce_windows(const kernels::WindowJob& job) override {
    ++launches;
    kernels::all_reduce_windows(job, this);
  }
  void begin_group() override { ++groups; }
  int launches = 0;
  int groups = 0;
};

/// A task that asks for windows.
exchange::StreamTask window_task(const Call& call, RankMemory& memory, DeviceWords& words, int rank, int world) {
  exchange::StreamTask task = stream_task(call, memory, words, rank, world);
  task.in_windows = true;
  return task;
}

// The ranks of a node, each with its executor.
class Node {
 public:
  explicit Node(int world, std::uint32_t slot_bytes = 1 << 16)
      : words_(static_cast<std::size_t>(world)), arena_(source_), memory_(make_memory(world, slot_bytes)) {
    for (int rank = 0; rank < world; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      kernels::WindowShape shape = shape_of(world, slot_bytes);
      shape.rank = static_cast<std::uint32_t>(rank);
      calls_.push_back(std::make_unique<exchange::WindowCalls>(std::make_unique<FakeWindows>(memory_), shape,
                                                               words_[at], std::chrono::milliseconds(5)));
      backends_.push_back(std::make_unique<WindowBackend>(arena_, rank, world));
      executors_.push_back(std::make_unique<exchange::StreamExecutor>(*backends_.back()));
      executors_.back()->use_windows(calls_.back().get());
    }
  }
  [[nodiscard]] exchange::WindowCalls& calls(std::size_t rank) { return *calls_[rank]; }
  [[nodiscard]] WindowBackend& backend(std::size_t rank) { return *backends_[rank]; }
  [[nodiscard]] kernels::WindowWords& words(std::size_t rank) { return words_[rank]; }

  /// Runs the call on all ranks, except for `absent`.
  void run(const Call& call, Outcome& outcome, unsigned seed, int absent = -1) {
    const int world = static_cast<int>(outcome.ranks.size());
    emulator::Streams streams;
    for (std::size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
      streams.share(memory_->window(rank), memory_->bytes());
    }
    std::vector<DeviceWords> words(outcome.ranks.size());
    for (int rank = 0; rank < world; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (rank != absent) {
        outcome.statistics[at] =
            executors_[at]
                ->run(call.schedule(rank, world), window_task(call, outcome.ranks[at], words[at], rank, world))
                ->statistics();
      }
    }
    streams.run(emulator::Schedule::random, seed);
    for (std::size_t at = 0; at < words.size(); ++at) {
      EXPECT_EQ(words[at].status.bad_frames, 0U);
      outcome.nonfinite[at] = words[at].status.nonfinite != 0;
    }
  }

 private:
  static kernels::WindowShape shape_of(int world, std::uint32_t slot_bytes) {
    return {.ranks = static_cast<std::uint32_t>(world), .rank = 0, .blocks = 2, .slot_bytes = slot_bytes};
  }
  static std::shared_ptr<WindowMemory> make_memory(int world, std::uint32_t slot_bytes) {
    return std::make_shared<WindowMemory>(world, kernels::window_bytes(shape_of(world, slot_bytes)));
  }
  std::vector<kernels::WindowWords> words_;
  exchange::NoMemory source_;
  memory::Arena arena_;
  std::shared_ptr<WindowMemory> memory_;
  std::vector<std::unique_ptr<exchange::WindowCalls>> calls_;
  std::vector<std::unique_ptr<WindowBackend>> backends_;
  std::vector<std::unique_ptr<exchange::StreamExecutor>> executors_;
};

void compare_in_windows(Node& node, const Call& call, int world, unsigned seed, Outcome& host_before,
                        Outcome& devices_before) {
  SCOPED_TRACE(call.text() + " world " + std::to_string(world) + " seed " + std::to_string(seed));
  Outcome host(call, world);
  Outcome devices(call, world);
  host.take_residuals(host_before);
  devices.take_residuals(devices_before);
  run_on_host(call, host);
  node.run(call, devices, seed);
  expect_equal(call, host, devices);
  host_before.take_residuals(host);
  devices_before.take_residuals(devices);
}

TEST(EmulatedWindows, CallsAreThoseOfTheHost) {
  unsigned at = 0;
  for (const int world : {2, 3, 4, 8}) {
    Node node(world);
    for (const char* spec : {"int8", "int4", "bf16"}) {
      ++at;
      const CodecSpec codec = CodecSpec::parse(spec);
      Call call{.first = codec,
                .second = codec,
                .dtype = std::array{DType::f32, DType::f16, DType::bf16}[at % 3],
                .count = std::array{14U, 7U, 3U}[at % 3] * 4096 + 300,
                .reduction = at % 2 == 0 ? Reduction::sum : Reduction::mean,
                .feedback = at % 4 != 3,
                .in_place = at % 2 == 0,
                .zero_rank = at % 5 == 0 ? 1 : -1,
                .chunk_bytes = at % 2 == 0 ? kOneLane : exchange::ChunkSize(1 << 13)};
      Outcome host(call, world);
      Outcome devices(call, world);
      const int before = node.backend(0).launches;
      for (call.step = 0; call.step < 2; ++call.step) {
        compare_in_windows(node, call, world, at, host, devices);
      }
      EXPECT_EQ(node.backend(0).launches - before, 2 * static_cast<int>(call.schedule(0, world).lanes));
      EXPECT_EQ(node.backend(0).groups, 0);
      if (HasFailure()) {
        return;
      }
    }
  }
}

TEST(EmulatedWindows, OtherCallsAreMadeAsBefore) {
  const Call taken{.count = 6 * 4096};
  Node node(2);
  const auto takes = [&](const Call& call) {
    RankMemory memory(call, 0, 2);
    DeviceWords words;
    const bool first = node.calls(0).takes(call.schedule(0, 2), window_task(call, memory, words, 0, 2));
    RankMemory other(call, 1, 2);
    EXPECT_EQ(node.calls(1).takes(call.schedule(1, 2), window_task(call, other, words, 1, 2)), first) << call.text();
    return first;
  };
  const auto with = [&](auto change) {
    Call call = taken;
    change(call);
    return takes(call);
  };
  EXPECT_TRUE(takes(taken));
  EXPECT_TRUE(with([](Call& call) { call.zero_rank = 1; }));
  EXPECT_TRUE(with([](Call& call) { call.feedback = true; }));
  EXPECT_FALSE(with([](Call& call) { call.algorithm = Algorithm::one_shot; }));
  EXPECT_FALSE(with([](Call& call) { call.weighted = true; }));
  EXPECT_FALSE(with([](Call& call) { call.preconditioned = true; }));
  EXPECT_FALSE(with([](Call& call) { call.second = CodecSpec::parse("int4"); }));
  EXPECT_FALSE(with([](Call& call) { call.first = call.second = CodecSpec::parse("exact"); }));
  EXPECT_FALSE(with([](Call& call) { call.first = call.second = CodecSpec::parse("topk(1%)+int8"); }));
  EXPECT_FALSE(with([](Call& call) { call.count = 0; }));
  EXPECT_FALSE(with([](Call& call) {  // chunks that no slot holds
    call.count = 40 * 4096;
    call.chunk_bytes = kOneLane;
  }));
  EXPECT_TRUE(with([](Call& call) { call.count = 40 * 4096; }));
  RankMemory memory(taken, 0, 2);
  DeviceWords words;
  EXPECT_FALSE(node.calls(0).takes(taken.schedule(0, 2), stream_task(taken, memory, words, 0, 2)))
      << "a task that does not ask";
}

TEST(EmulatedWindows, ResidualsThatAreNotKeptAreFoldedInElsewhere) {
  const Call call{.count = 6 * 4096, .feedback = true};
  Node node(2);
  RankMemory memory(call, 0, 2);
  DeviceWords words;
  exchange::StreamTask task = window_task(call, memory, words, 0, 2);
  task.call.residuals.keeps = {};
  EXPECT_FALSE(node.calls(0).takes(call.schedule(0, 2), task));
  task = window_task(call, memory, words, 0, 2);
  task.call.residuals.moved = true;
  EXPECT_FALSE(node.calls(0).takes(call.schedule(0, 2), task));
}

TEST(EmulatedWindows, AMissingRankIsATimeoutThatNamesIt) {
  const Call call{.count = 6 * 4096};
  Node node(3);
  EXPECT_NO_THROW(node.calls(0).check());
  Outcome outcome(call, 3);
  node.run(call, outcome, 1, 1);
  for (const std::size_t rank : {0U, 2U}) {
    try {
      node.calls(rank).check();
      ADD_FAILURE() << "rank " << rank;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout);
      EXPECT_NE(std::string(error.what()).find("waited for rank 1"), std::string::npos) << error.what();
    }
  }
}

TEST(EmulatedWindows, BlocksOfRanksThatShareADevice) {
  EXPECT_EQ(exchange::window_blocks(528, 1), 64U);
  EXPECT_EQ(exchange::window_blocks(396, 8), 49U);
  EXPECT_EQ(exchange::window_blocks(7, 8), 0U);
}

}  // namespace
}  // namespace gradwire::test
