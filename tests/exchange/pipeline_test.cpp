// Tests that the pipeline runs: chunks overlap, frames follow the chunk size, and memory stays within the window.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "exchange/host/host_executor.hpp"
#include "exchange/resolved_call.hpp"
#include "gradwire/emulation.hpp"
#include "inputs.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using namespace exchange;  // NOLINT(google-build-using-namespace): tests internals

constexpr std::uint64_t kCount = 512 * codec::kTileElements;
constexpr std::uint64_t kChunkBytes = 1 << 15;

CallRequest int8_of(std::uint64_t count) {
  const CodecSpec int8 = CodecSpec::parse("int8");
  return {.codec = int8, .second_hop = int8, .count = count, .chunk_bytes = kChunkBytes};
}

struct Traced {
  std::vector<TraceEvent> events;
  std::uint64_t peak_bytes = 0;
};

// Lets two ranks reduce; rank 1 begins only once `may_begin` holds for rank 0's events (or two seconds have passed).
Traced reduce_with_late_peer(const WindowLimits& window, std::uint64_t known,
                             const std::function<bool(const TraceEvent&)>& may_begin) {
  Traced reduced;
  std::atomic<bool> begin{false};
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    HostExecutorOptions options{.checksum = false, .window = window};
    if (transport->rank() == 0) {
      options.trace = [&](const TraceEvent& event) {
        reduced.events.push_back(event);
        begin = begin || may_begin(event);
      };
    } else {
      for (int i = 0; i < 20000 && !begin; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    HostExecutor executor(*transport, options);
    executor.set_known_window(known);
    auto [call, schedule] = resolve(int8_of(kCount), {transport->rank(), transport->world_size()});
    Values values(DType::f32, gaussian(kCount, transport->rank()));
    codec::TensorList tensors(DType::f32, call.codecs.first.working());
    tensors.append(values.view().data, values.view().data, kCount);
    const auto execution =
        executor.start(std::move(schedule), {.tensors = std::move(tensors), .call = std::move(call), .name = "test"});
    executor.wait(*execution);
    if (transport->rank() == 0) {
      reduced.peak_bytes = executor.pool().peak_bytes();
    }
  });
  return reduced;
}

std::ptrdiff_t position(const std::vector<TraceEvent>& events, Opcode opcode, std::uint64_t lane, bool completed) {
  return std::find_if(
             events.begin(), events.end(),
             [&](const TraceEvent& e) { return e.opcode == opcode && e.lane == lane && e.completed == completed; }) -
         events.begin();
}

// Mutation tried: a window of one lane.
TEST(Pipeline, ChunksAreEncodedBeforeEarlierOnesAreReceived) {
  const auto third_encoded = [](const TraceEvent& event) { return event.opcode == Opcode::encode && event.lane == 3; };
  const auto events = reduce_with_late_peer({}, 0, third_encoded).events;
  const auto received = position(events, Opcode::receive, 0, true);
  ASSERT_LT(received, static_cast<std::ptrdiff_t>(events.size()));
  for (std::uint64_t lane = 1; lane <= 3; ++lane) {
    EXPECT_LT(position(events, Opcode::encode, lane, false), received) << "lane " << lane;
  }
  EXPECT_GT(position(events, Opcode::encode, 4, false), received) << "more lanes in flight than the window";
}

TEST(Pipeline, SecondHopOverlapsLaterChunksOfTheFirst) {
  const auto events =
      reduce_with_late_peer({}, 0, [](const TraceEvent& event) { return event.opcode == Opcode::encode; }).events;
  const auto lanes = kCount / 2 / codec::kTileElements / 7;  // 7 tiles of int8 fit 32 KiB
  EXPECT_LT(position(events, Opcode::reduce_encode, 0, false), position(events, Opcode::encode, lanes - 1, false));
}

// Returns the largest number of lanes that were between their first and their last event at one time.
std::uint64_t most_in_flight(const std::vector<TraceEvent>& events) {
  std::map<std::uint64_t, std::pair<std::size_t, std::size_t>> spans;  // events by lane
  for (std::size_t i = 0; i < events.size(); ++i) {
    spans.try_emplace(events[i].lane, i, i).first->second.second = i;
  }
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    most = std::max<std::uint64_t>(
        most, static_cast<std::uint64_t>(std::count_if(spans.begin(), spans.end(), [&](const auto& lane) {
          return lane.second.first <= i && i <= lane.second.second;
        })));
  }
  return most;
}

// A busy machine may look like a long link, for which there are more lanes, so the test counts them. Mutation tried:
// buffers are kept until the execution ends.
TEST(Pipeline, MemoryIsTheWindowNotTheMessage) {
  const Traced reduced = reduce_with_late_peer({}, 0, [](const TraceEvent&) { return true; });
  const std::uint64_t lanes = most_in_flight(reduced.events);
  EXPECT_LT(lanes, kCount / 2 / codec::kTileElements / 7) << "all lanes of the message";
  // Each lane has one frame out, one in, one result out and one result in.
  EXPECT_LE(reduced.peak_bytes, lanes * 4U * (kChunkBytes + 4096));
}

// Mutation tried: the window ignores the memory limit.
TEST(Pipeline, AFarLinkHasMoreLanesWithinTheirMemory) {
  const std::uint64_t memory = 8 * 4 * (kChunkBytes + 4096);
  const auto encoded = [](const TraceEvent& event) { return event.opcode == Opcode::encode && event.lane == 7; };
  const Traced reduced = reduce_with_late_peer({.memory_bytes = memory}, 1ULL << 30, encoded);
  const auto received = position(reduced.events, Opcode::receive, 0, true);
  EXPECT_LT(position(reduced.events, Opcode::encode, 7, false), received);
  EXPECT_LE(reduced.peak_bytes, memory);
}

// Mutation tried: the lanes of a rank with a larger window carry other chunks.
TEST(Pipeline, RanksMayHaveOtherWindows) {
  std::vector<std::vector<std::vector<float>>> results;
  for (const auto& windows :
       {std::array{0ULL, 0ULL}, std::array{1ULL << 30, 0ULL}, std::array{1ULL << 30, 1ULL << 30}}) {
    std::vector<std::vector<float>>& of_ranks = results.emplace_back(2);
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      const auto rank = static_cast<std::size_t>(transport->rank());
      HostExecutor executor(*transport, {});
      executor.set_known_window(windows[rank]);
      auto [call, schedule] = resolve(int8_of(kCount), {transport->rank(), transport->world_size()});
      of_ranks[rank].resize(kCount);
      const std::vector<double> input = gaussian(kCount, transport->rank());
      std::copy(input.begin(), input.end(), of_ranks[rank].begin());
      codec::TensorList tensors(DType::f32, call.codecs.first.working());
      tensors.append(of_ranks[rank].data(), of_ranks[rank].data(), kCount);
      const auto execution =
          executor.start(std::move(schedule), {.tensors = std::move(tensors), .call = std::move(call), .name = "test"});
      executor.wait(*execution);
    });
  }
  for (const auto& of_ranks : results) {
    EXPECT_TRUE(of_ranks[0] == results[0][0] && of_ranks[1] == results[0][0]);
  }
}

// The window grows over a link with 20 ms of latency, once calls have measured that. Lanes are counted, not timed. A
// busy machine may not keep the link full, so the test tries again. Mutation tried: four lanes.
TEST(Pipeline, AWindowGrowsWithTheLink) {
#ifdef GRADWIRE_SANITIZED
  constexpr int kGrown = kLeastLanes;  // code that encodes a hundred times as slowly never fills such a link
#else
  constexpr int kGrown = 2 * kLeastLanes;
#endif
  std::array<int, 2> most{};
  for (int attempt = 0; attempt < 3 && *std::min_element(most.begin(), most.end()) <= kGrown; ++attempt) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
      const auto transport = make_throttled(inner, Link::parse("400Mbit/s,20ms"));
      int& own = most[static_cast<std::size_t>(inner->rank())];
      HostExecutorOptions options{.checksum = false};
      const HostExecutor* running = nullptr;
      options.trace = [&](const TraceEvent&) { own = std::max(own, running->window().lanes()); };
      HostExecutor executor(*transport, options);
      running = &executor;
      Values values(DType::f32, gaussian(kCount, inner->rank()));
      for (int i = 0; i < 4; ++i) {
        auto [call, schedule] = resolve(int8_of(kCount), {transport->rank(), transport->world_size()});
        codec::TensorList tensors(DType::f32, call.codecs.first.working());
        tensors.append(values.view().data, values.view().data, kCount);
        const auto execution = executor.start(std::move(schedule),
                                              {.tensors = std::move(tensors), .call = std::move(call), .name = "test"});
        executor.wait(*execution);
      }
    });
  }
  EXPECT_GT(most[0], kGrown);
  EXPECT_GT(most[1], kGrown);
}

TEST(Pipeline, FramesScaleWithTheChunkSize) {
  std::vector<std::uint64_t> messages;
  for (const std::uint64_t chunk_bytes : {1ULL << 14, 1ULL << 15, 1ULL << 16}) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport);
      Values values(DType::f32, gaussian(256 * codec::kTileElements, transport->rank()));
      communicator.all_reduce(
          values.view(),
          {.codec = CodecSpec::parse("exact"), .algorithm = Algorithm::two_shot, .chunk_bytes = chunk_bytes});
      if (transport->rank() == 0) {
        messages.push_back(transport->counters().messages_sent);
      }
    });
  }
  EXPECT_EQ(messages[0], 2 * messages[1]);
  EXPECT_EQ(messages[1], 2 * messages[2]);
}

// Two collectives start together: the second one's chunks leave before the first one's have come back.
TEST(Pipeline, TheNextCollectiveStartsBeforeTheLastOneEnds) {
  std::atomic<bool> second_began{false};
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    HostExecutorOptions options{.checksum = false};
    if (transport->rank() == 0) {
      options.trace = [&](const TraceEvent& event) {
        second_began = second_began || (event.sequence == 1 && event.opcode == Opcode::send);
      };
    } else {
      for (int i = 0; i < 20000 && !second_began; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_TRUE(second_began) << "the second collective waited for the first";
    }
    HostExecutor executor(*transport, options);
    std::vector<Values> values(
        2, Values(DType::f32, gaussian(4 * codec::kTileElements, transport->rank())));  // two lanes each
    std::vector<std::shared_ptr<Execution>> executions;
    for (Values& value : values) {
      auto [call, schedule] = resolve(int8_of(value.view().count), {transport->rank(), transport->world_size()});
      codec::TensorList tensors(DType::f32, call.codecs.first.working());
      tensors.append(value.view().data, value.view().data, value.view().count);
      executions.push_back(executor.start(std::move(schedule),
                                          {.tensors = std::move(tensors), .call = std::move(call), .name = "test"}));
    }
    executor.wait(*executions[1]);
    EXPECT_TRUE(executions[0]->done());
  });
}

}  // namespace
}  // namespace gradwire::test
