// Tests the order in which the stream executor enqueues: rounds of neighbouring lanes share groups, computation
// overlaps them, memory is bounded, and each event is needed. Also tests that the simulated devices notice a wrong
// order.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "exchange/stream/dry_run.hpp"
#include "stream_harness.hpp"

namespace gradwire::test {
namespace {

using exchange::Opcode;
using exchange::StreamExecutor;
using exchange::StreamTrace;

constexpr int kWorld = 3;

Call many_lanes() {
  return {.count = 60 * 4096, .reduction = Reduction::mean, .chunk_bytes = 1 << 12};  // 20 lanes of one tile
}

struct Recording {
  std::vector<StreamTrace> events;
  std::uint64_t lanes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t waits = 0;
};

Recording record(const Call& call, int rank, int world) {
  Recording recording;
  SimulatedWorld simulated(world, 1);
  RankMemory memory(call, rank, world);
  DeviceWords words;
  StreamExecutor executor(simulated.device(rank),
                          {.trace = [&](const StreamTrace& event) { recording.events.push_back(event); }});
  const exchange::Schedule schedule = call.schedule(rank, world);
  recording.lanes = schedule.lanes;
  executor.run(schedule, stream_task(call, memory, words, rank, world));
  recording.peak_bytes = simulated.device(rank).peak_bytes();
  recording.waits = simulated.device(rank).waits();
  return recording;
}

std::size_t find(const Recording& recording, Opcode opcode, std::uint64_t lane) {
  const auto found = std::find_if(recording.events.begin(), recording.events.end(), [&](const StreamTrace& event) {
    return event.kind == StreamTrace::Kind::instruction && event.opcode == opcode && event.lane == lane;
  });
  return static_cast<std::size_t>(found - recording.events.begin());
}

std::vector<std::size_t> all_of(const Recording& recording, StreamTrace::Kind kind) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < recording.events.size(); ++i) {
    if (recording.events[i].kind == kind) {
      places.push_back(i);
    }
  }
  return places;
}

// Mutations tried: the executor drains after each lane; lanes communicate in groups of their own.
TEST(StreamPipeline, AGroupHoldsTheFirstRoundOfALaneAndTheSecondOfTheOneBefore) {
  for (int rank = 0; rank < kWorld; ++rank) {
    const Recording recording = record(many_lanes(), rank, kWorld);
    ASSERT_EQ(recording.lanes, 20U);
    const auto begins = all_of(recording, StreamTrace::Kind::group_begin);
    const auto ends = all_of(recording, StreamTrace::Kind::group_end);
    ASSERT_EQ(begins.size(), recording.lanes + 1);
    for (std::size_t group = 0; group < begins.size(); ++group) {
      std::set<std::pair<std::uint64_t, int>> rounds;
      for (std::size_t i = begins[group] + 1; i < ends[group]; ++i) {
        rounds.emplace(recording.events[i].lane, recording.events[i].round);
      }
      std::set<std::pair<std::uint64_t, int>> wanted;
      if (group < recording.lanes) {
        wanted.emplace(group, 0);
      }
      if (group > 0) {
        wanted.emplace(group - 1, 1);
      }
      EXPECT_EQ(rounds, wanted) << "group " << group;
    }
  }
}

// Mutations tried: the compute queue waits before the next lane is encoded; decoding comes before the group.
TEST(StreamPipeline, TheNextLaneIsEncodedWhileAGroupTravels) {
  const Recording recording = record(many_lanes(), 1, kWorld);
  const auto ends = all_of(recording, StreamTrace::Kind::group_end);
  const auto waits = all_of(recording, StreamTrace::Kind::wait);
  ASSERT_EQ(waits.size(), ends.size());
  for (std::uint64_t lane = 0; lane + 2 < recording.lanes; ++lane) {
    EXPECT_GT(find(recording, Opcode::encode, lane + 1), ends[lane]);  // that group sends the lane's first frames
    EXPECT_LT(find(recording, Opcode::encode, lane + 1), waits[lane]);
    EXPECT_GT(find(recording, Opcode::reduce_encode, lane), waits[lane]);
    EXPECT_GT(find(recording, Opcode::decode, lane), ends[lane + 2]);  // nothing in that group waits for the decoding
    if (lane + 2 < waits.size()) {
      EXPECT_LT(find(recording, Opcode::decode, lane), waits[lane + 2]);
    }
  }
}

TEST(StreamPipeline, WeightsTravelBesideTheFirstFramesOrBeforeThem) {
  Call call = many_lanes();
  call.weighted = true;
  const Recording beside = record(call, 0, kWorld);
  EXPECT_EQ(all_of(beside, StreamTrace::Kind::group_begin).size(), beside.lanes + 1);
  EXPECT_LT(find(beside, Opcode::encode, 1), find(beside, Opcode::sum_weights, 0));
  EXPECT_LT(find(beside, Opcode::sum_weights, 0), find(beside, Opcode::reduce_encode, 0));
  call.first = call.second = CodecSpec::parse("exact");
  const Recording before = record(call, 0, kWorld);
  EXPECT_EQ(all_of(before, StreamTrace::Kind::group_begin).size(), before.lanes + 2);
  EXPECT_LT(find(before, Opcode::sum_weights, 0), find(before, Opcode::encode, 0));
}

// Mutation tried: frames are released when their lane ends.
TEST(StreamPipeline, MemoryDoesNotGrowWithTheNumberOfLanes) {
  Call call = many_lanes();
  const std::uint64_t frame = call.codecs().first.frame_bytes(4096);
  const auto peak = [&](std::uint64_t tiles) {
    call.count = tiles * 4096;
    return record(call, 0, kWorld).peak_bytes;
  };
  EXPECT_EQ(peak(60), peak(240));
  // The memory holds two lanes' first frames out, one lane's in, and three lanes' second frames: those of the youngest
  // lane have the header of the own one.
  EXPECT_LE(peak(60), (3 * (kWorld - 1) + 3 * kWorld) * (frame + 256));
}

// Enqueues on all ranks with faults on rank 1, and runs; returns the first error, or "" and whether results are
// correct.
struct Trial {
  std::string error;
  bool right = false;
};
Trial attempt(const Call& call, const SimulatedDevice::Faults& faults, bool checks_races, unsigned seed) {
  Outcome wanted(call, kWorld);
  run_on_devices(call, wanted, 1);
  Outcome got(call, kWorld);
  SimulatedWorld simulated(kWorld, seed);
  std::vector<DeviceWords> words(kWorld);
  simulated.device(1).faults = faults;
  Trial trial;
  try {
    for (int rank = 0; rank < kWorld; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      simulated.device(rank).checks_races = checks_races;
      StreamExecutor executor(simulated.device(rank));
      executor.run(call.schedule(rank, kWorld), stream_task(call, got.ranks[at], words[at], rank, kWorld));
    }
    simulated.run();
  } catch (const Error& error) {
    trial.error = error.what();
    return trial;
  }
  trial.right = true;
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    trial.right = trial.right && wanted.ranks[rank].input == got.ranks[rank].input;
  }
  return trial;
}

Call few_lanes() {
  return {.first = CodecSpec::parse("int8"),
          .second = CodecSpec::parse("int4"),
          .count = 9 * 4096,
          .reduction = Reduction::mean,
          .weighted = true,
          .chunk_bytes = 1 << 12};
}

TEST(StreamPipeline, EveryEventIsNeeded) {
  for (const Algorithm algorithm : {Algorithm::two_shot, Algorithm::one_shot}) {
    Call call = few_lanes();
    call.algorithm = algorithm;
    const std::uint64_t waits = record(call, 1, kWorld).waits;
    ASSERT_GE(waits, 6U);
    for (std::uint64_t wait = 0; wait < waits; ++wait) {
      const Trial trial = attempt(call, {.drop_wait = wait}, true, 1);
      EXPECT_NE(trial.error.find("no event is between them"), std::string::npos) << wait << ": " << trial.error;
    }
  }
}

// This test does not look for races, but runs in a wrong order, which shows in the results.
TEST(StreamPipeline, AMissingEventSpoilsResultsInSomeOrder) {
  for (const std::uint64_t wait : {0, 1, 2, 3}) {  // by turns a wait of the communication queue and the compute queue
    bool seen = false;
    for (unsigned seed = 0; seed < 40 && !seen; ++seed) {
      seen = !attempt(few_lanes(), {.drop_wait = wait}, false, seed).right;
    }
    EXPECT_TRUE(seen) << "wait " << wait;
  }
}

TEST(StreamPipeline, MemoryReleasedTooEarlySpoilsResults) {
  for (const std::uint64_t block : {1, 2, 4}) {  // of lane 0: frames out, results, frames in
    const Trial checked = attempt(few_lanes(), {.early_release = block}, true, 1);
    EXPECT_NE(checked.error.find("memory that is not acquired"), std::string::npos) << checked.error;
    bool seen = false;
    for (unsigned seed = 0; seed < 40 && !seen; ++seed) {
      seen = !attempt(few_lanes(), {.early_release = block}, false, seed).right;
    }
    EXPECT_TRUE(seen) << "block " << block;
  }
}

// Two groups of equal form fit together, as on a wire: there the frames show that they are not the expected ones.
TEST(StreamPipeline, GroupsInAnotherOrderAreNoticed) {
  for (const std::uint64_t group : {0, 1, 2}) {
    const Trial trial = attempt(few_lanes(), {.swap_group = group}, false, 1);
    EXPECT_FALSE(trial.right);
    if (group != 1) {
      EXPECT_TRUE(trial.error.starts_with("deadlock") || trial.error.starts_with("groups do not fit")) << trial.error;
      EXPECT_NE(trial.error.find("rank 1 communication: group"), std::string::npos) << trial.error;
    }
  }
}

TEST(StreamPipeline, RanksThatDisagreeDoNotFit) {
  std::vector<DeviceWords> words(kWorld);
  const auto enqueue = [&](SimulatedWorld& simulated, const Call& call, int rank) {
    RankMemory memory(call, rank, kWorld);
    StreamExecutor executor(simulated.device(rank));
    executor.run(call.schedule(rank, kWorld),
                 stream_task(call, memory, words[static_cast<std::size_t>(rank)], rank, kWorld));
    return memory;
  };
  const auto error_of = [](SimulatedWorld& simulated) {
    try {
      simulated.run();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Call call = many_lanes();
  call.first = call.second = CodecSpec::parse("exact");
  {
    SimulatedWorld simulated(kWorld, 5);
    std::vector<RankMemory> kept;
    for (int rank = 0; rank < kWorld; ++rank) {
      Call theirs = call;
      theirs.count += rank == 2 ? 1 : 0;
      kept.push_back(enqueue(simulated, theirs, rank));
    }
    const std::string text = error_of(simulated);
    EXPECT_TRUE(text.starts_with("groups do not fit")) << text;
  }
  {
    SimulatedWorld simulated(kWorld, 5);
    std::vector<RankMemory> kept;
    kept.push_back(enqueue(simulated, call, 0));
    kept.push_back(enqueue(simulated, call, 1));
    const std::string text = error_of(simulated);
    EXPECT_TRUE(text.starts_with("deadlock")) << text;
    EXPECT_NE(text.find("rank 2 communication: empty"), std::string::npos) << text;
  }
}

TEST(StreamPipeline, AnErrorClosesTheGroupAndEndsTheExecutor) {
  const Call call = few_lanes();
  const int rank = 1;
  for (const std::uint64_t block : {0, 3, 7}) {
    SimulatedWorld simulated(kWorld, 1);
    RankMemory memory(call, rank, kWorld);
    DeviceWords words;
    simulated.device(rank).faults.fail_acquire = block;
    StreamExecutor executor(simulated.device(rank));
    try {
      executor.run(call.schedule(rank, kWorld), stream_task(call, memory, words, rank, kWorld));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    }
    EXPECT_FALSE(simulated.device(rank).in_group());
    try {
      executor.finish();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_NE(std::string(error.what()).find("no memory for"), std::string::npos) << error.what();
    }
  }
}

TEST(StreamPipeline, BadTasksAreNamed) {
  const auto error_of = [](const Call& call, const std::function<void(exchange::StreamTask&)>& spoil) {
    SimulatedWorld simulated(2, 1);
    RankMemory memory(call, 0, 2);
    DeviceWords words;
    StreamExecutor executor(simulated.device(0));
    auto task = stream_task(call, memory, words, 0, 2);
    spoil(task);
    try {
      executor.run(call.schedule(0, 2), task);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string();
  };
  const Call call{.count = 10000, .weighted = true, .feedback = true};
  EXPECT_NE(error_of(call, [](auto& task) { task.weight = -1; }).find("weight -1"), std::string::npos);
  EXPECT_NE(error_of(call, [](auto& task) { task.step = nullptr; }).find("step counter"), std::string::npos);
  EXPECT_NE(error_of(call, [](auto& task) { task.local_residual.count = 5; }).find("local residual covers 5 elements"),
            std::string::npos);
  EXPECT_NE(error_of(call, [](auto& task) { task.owner_residual.data = nullptr; }).find("owner residual covers 0"),
            std::string::npos);
  EXPECT_NE(error_of(call, [](auto& task) { task.input.count = 100; }).find("input has 100 elements"),
            std::string::npos);
  EXPECT_NE(error_of(call, [](auto& task) { task.output.first = 1; }).find("output has 10000 elements from 1 on"),
            std::string::npos);
}

TEST(StreamPipeline, ChunksFillTheWireButNotTheMemoryOfLargeWorlds) {
  const auto bytes = [](int world) { return exchange::stream_chunks(world).bytes; };
  EXPECT_EQ(bytes(2), 17ULL << 18);
  EXPECT_EQ(bytes(32), 17ULL << 18);
  EXPECT_EQ(bytes(64), 17ULL << 17);
  EXPECT_EQ(bytes(4096), 256ULL << 10);
  EXPECT_EQ(exchange::stream_chunks(4096, 1 << 10).bytes, 1ULL << 10) << "as asked";
  EXPECT_EQ(exchange::stream_chunks(8, 1ULL << 30).bytes, 1ULL << 28) << "a sum finds its frames by 32 bits";
  const auto lanes = [](std::uint64_t count, exchange::ChunkSize chunks) {
    return exchange::Partition::even(count, 2, codec::Codec(CodecSpec::parse("int8"), DType::f32), chunks).lanes();
  };
  EXPECT_EQ(lanes(25ULL << 18, exchange::stream_chunks(2)), 1U);
  EXPECT_EQ(lanes(25ULL << 18, exchange::stream_chunks(2).bytes), 4U) << "a host's";
}

class RangeBackend final : public exchange::NullBackend {
 public:
  using NullBackend::NullBackend;
  void begin_range(const char* name) override {
    names.emplace_back(name);
    ++depth;
  }
  void end_range() noexcept override { --depth; }

  std::vector<std::string> names;
  int depth = 0;
};

// Mutation tried: a range ends only if nothing was thrown.
TEST(StreamPipeline, ProfilersSeeNestedRanges) {
  exchange::NoMemory source;
  memory::Arena arena(source, 1 << 16);
  RangeBackend backend(arena, 0, 2);
  exchange::StreamExecutor executor(backend);
  const exchange::Resolved resolved =
      exchange::resolve({.count = 10000, .chunk_bytes = exchange::stream_chunks(2)}, {0, 2});
  std::uint32_t step = 0;
  kernels::DeviceStatus status;
  exchange::StreamTask task{.input = {&step, 0, 10000},
                            .output = {&step, 0, 10000},
                            .count = 10000,
                            .call = resolved.call,
                            .step = &step,
                            .status = &status,
                            .local_residual = {},
                            .owner_residual = {},
                            .name = "bucket 3"};
  executor.run(resolved.schedule, task);
  EXPECT_EQ(backend.names, (std::vector<std::string>{"bucket 3", "messages", "the last rounds of calls", "messages"}));
  EXPECT_EQ(backend.depth, 0);
  task.input.count = 1;
  EXPECT_THROW(executor.run(resolved.schedule, task), Error);
  EXPECT_EQ(backend.depth, 0);
}

TEST(StreamPipeline, DenseIsTheLibrarysOwnUnlessItMustBeDeterministic) {
  const auto name = [](Algorithm algorithm, bool deterministic) {
    const exchange::CallRequest request{.algorithm = algorithm,
                                        .codec = CodecSpec::parse("exact"),
                                        .second_hop = CodecSpec::parse("exact"),
                                        .dtype = DType::bf16,
                                        .count = 1 << 20,
                                        .native = deterministic ? exchange::NativeSum{} : exchange::kStreamNativeSum};
    return std::string(exchange::resolve(request, {0, 2}).schedule.name);
  };
  EXPECT_EQ(name(Algorithm::dense, false), "native all-reduce");
  EXPECT_EQ(name(Algorithm::dense, true), "two_shot all-reduce");
  EXPECT_EQ(name(Algorithm::one_shot, false), "one_shot all-reduce");
}

}  // namespace
}  // namespace gradwire::test
