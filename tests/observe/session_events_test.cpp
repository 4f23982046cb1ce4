// Tests the events of sessions, communicators and tables: they record all traffic that the transport counted, and
// nothing if there is no reader.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/elapsed.hpp"
#include "gathering.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "observe/record.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/in_call_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using observe::Event;
using observe::EventKind;
using observe::test::Kept;
using observe::test::Observed;

const observe::CollectorOptions kQuick{.interval = std::chrono::milliseconds(5)};
constexpr int kRanks = 4;
constexpr std::uint64_t kSteps = 3;

// Returns the rank of the source of an event.
int rank_of(const Event& event) { return observe::source_of(static_cast<observe::SourceId>(event.source))->rank; }

struct Counted {
  std::map<EventKind, std::uint64_t> events;
  std::map<EventKind, std::uint64_t> bytes;
  std::uint64_t sent() { return bytes[EventKind::send] + bytes[EventKind::all_reduce]; }
};

std::map<int, Counted> count(const Kept& kept) {
  std::map<int, Counted> ranks;
  for (const Kept::Seen& seen : kept.seen()) {
    Counted& rank = ranks[rank_of(seen.event)];
    ++rank.events[seen.event.kind];
    rank.bytes[seen.event.kind] += seen.event.bytes;
  }
  return ranks;
}

// Makes three steps of two tensors, a large and a small one.
SessionStatistics train(const std::shared_ptr<Transport>& transport, const Policy& policy,
                        std::uint64_t count = 300'000) {
  std::vector<float> large(count, 1.0F);
  std::vector<float> small(1000, 1.0F);
  Session session(transport, policy);
  const TensorId first = session.add("first", {large.data(), large.size(), DType::f32});
  const TensorId second = session.add("second", {small.data(), small.size(), DType::f32});
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    session.ready(second);
    session.ready(first);
    session.finish();
  }
  return session.statistics();
}

// The parameters are a policy, and the size of the first tensor: few elements make small steps, which finish() makes
// itself.
class SessionEvents : public ::testing::TestWithParam<std::tuple<const char*, std::uint64_t>> {};

TEST_P(SessionEvents, AddUpToWhatTheTransportCounted) {
  Observed observed(kQuick);
  std::vector<SessionStatistics> statistics(kRanks);
  run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    statistics[static_cast<std::size_t>(transport->rank())] =
        train(transport, Policy::parse("[defaults]\n" + std::string(std::get<0>(GetParam()))), std::get<1>(GetParam()));
  });
  observed.stop();
  ASSERT_EQ(observed.kept->dropped(), 0U);
  auto ranks = count(*observed.kept);
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(kRanks));
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    Counted& counted = ranks[rank];
    const Statistics all = statistics[static_cast<std::size_t>(rank)].all();
    EXPECT_GT(all.bytes_sent, 0U);
    EXPECT_EQ(counted.sent(), all.bytes_sent) << "rank " << rank;
    EXPECT_EQ(counted.events[EventKind::step_begin], kSteps);
    EXPECT_EQ(counted.events[EventKind::step_end], kSteps);
    EXPECT_EQ(counted.events[EventKind::bucket_begin], all.calls);
    EXPECT_EQ(counted.events[EventKind::bucket_end], all.calls);
    EXPECT_EQ(counted.bytes[EventKind::bucket_begin], all.bytes_in);
    EXPECT_EQ(counted.events[EventKind::error], 0U);
    sent += counted.bytes[EventKind::send];
    received += counted.bytes[EventKind::receive];
  }
  EXPECT_EQ(sent, received);
}

INSTANTIATE_TEST_SUITE_P(Policies, SessionEvents,
                         ::testing::Combine(::testing::Values("codec = \"int8\"", "codec = \"exact\"",
                                                              "codec = \"topk(1%)+int8\"",
                                                              "codec = \"int4\"\nalgorithm = \"one_shot\""),
                                            ::testing::Values(300'000, 500)));

// The blocking sum of a library goes through no lane.
TEST(SessionEvents, ASumInsideACallCounts) {
  Observed observed(kQuick);
  std::vector<std::uint64_t> sent(2);
  std::atomic<int> calls{0};
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    const auto transport = std::make_shared<InCallTransport>(inner);
    sent[static_cast<std::size_t>(inner->rank())] = train(transport, Policy::uniform("exact")).all().bytes_sent;
    calls += transport->calls();
  });
  observed.stop();
  EXPECT_GT(calls, 0);
  auto ranks = count(*observed.kept);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks[rank].sent(), sent[static_cast<std::size_t>(rank)]);
  }
}

TEST(SessionEvents, AWaitForALateRankIsSeen) {
  constexpr std::chrono::milliseconds kLate{60};
  Observed observed(kQuick);
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(300'000, 1.0F);
    Session session(transport, Policy::uniform("int8"));
    const TensorId id = session.add("values", {values.data(), values.size(), DType::f32});
    session.ready(id);
    session.finish();  // agrees on the plan
    if (transport->rank() == 1) {
      std::this_thread::sleep_for(kLate);
    }
    session.ready(id);
    session.finish();
  });
  const double elapsed = seconds_since(begin);
  observed.stop();
  std::map<int, double> waited;
  for (const Kept::Seen& seen : observed.kept->seen()) {
    if (seen.event.kind == EventKind::wait && seen.event.step == 1) {
      waited[rank_of(seen.event)] += observed.kept->scale().seconds(seen.event.duration * observe::kTicksOfDuration);
    }
  }
  EXPECT_GT(waited[0], 0.5 * std::chrono::duration<double>(kLate).count());
  EXPECT_LE(waited[0], elapsed) << "no time counts twice";
}

TEST(SessionEvents, AStageIsOfItsStepAndBucketAndTakesTime) {
  Observed observed(kQuick);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    train(transport, Policy::parse("[defaults]\ncodec = \"int8\"\nsmall = \"off\"\n"));
  });
  observed.stop();
  std::map<std::uint32_t, int> encoded;  // by step
  for (const Kept::Seen& seen : observed.kept->seen()) {
    const Event& event = seen.event;
    switch (event.kind) {
      case EventKind::encode: ++encoded[event.step]; [[fallthrough]];
      case EventKind::reduce:
      case EventKind::decode: EXPECT_GT(event.bytes, 0U); [[fallthrough]];
      case EventKind::bucket_end: EXPECT_NE(event.bucket, observe::kNoBucket); [[fallthrough]];
      case EventKind::send:
      case EventKind::receive: EXPECT_LT(event.step, kSteps); [[fallthrough]];
      case EventKind::wait: EXPECT_GT(event.duration, 0U) << to_string(event.kind); break;
      default: break;
    }
    if (event.kind == EventKind::send || event.kind == EventKind::receive) {
      EXPECT_EQ(event.peer, 1 - rank_of(event));
    }
  }
  EXPECT_EQ(encoded.size(), kSteps);
}

TEST(SessionEvents, CountsAreHandedOverAndTheLastSayAll) {
  Observed observed(kQuick);
  std::vector<std::uint64_t> sent(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    sent[static_cast<std::size_t>(transport->rank())] = train(transport, Policy::uniform("int8")).all().bytes_sent;
  });
  observed.stop();
  std::vector<std::uint64_t> last(2);
  for (const observe::Snapshot& snapshot : observed.kept->snapshots()) {
    if (snapshot.last) {
      last[static_cast<std::size_t>(snapshot.statistics.rank)] = snapshot.statistics.all().bytes_sent;
    }
  }
  EXPECT_EQ(last, sent);
}

TEST(SessionEvents, OffNothingIsRecorded) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) { train(transport, Policy::uniform("int8")); });
  Observed observed(kQuick);
  observed.stop();
  EXPECT_TRUE(observed.kept->seen().empty());
  EXPECT_EQ(observed.kept->dropped(), 0U);
}

TEST(SessionEvents, SavedStateAndErrors) {
  Observed observed(kQuick);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(transport->rank() == 0 ? 10'000 : 20'000, 1.0F);
    Session session(transport, Policy::uniform("int8"));
    const TensorId id = session.add("values", {values.data(), values.size(), DType::f32});
    std::ostringstream state;
    session.save(state);
    static_cast<void>(error_of([&] {
      session.ready(id);
      session.finish();
    }));
  });
  observed.stop();
  auto ranks = count(*observed.kept);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks[rank].events[EventKind::save], 1U);
    EXPECT_GE(ranks[rank].events[EventKind::error], 1U);
  }
}

TEST(CommunicatorEvents, AddUpToWhatTheTransportCounted) {
  Observed observed(kQuick);
  std::vector<std::uint64_t> sent(kRanks);
  run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(100'000, 1.0F);
    Communicator communicator(transport);
    for (const char* codec : {"int8", "exact"}) {
      sent[static_cast<std::size_t>(transport->rank())] +=
          communicator.all_reduce({values.data(), values.size(), DType::f32}, {.codec = codec}).bytes_sent;
    }
  });
  observed.stop();
  auto ranks = count(*observed.kept);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks[rank].sent(), sent[static_cast<std::size_t>(rank)]);
  }
}

TEST(TableEvents, PullsAndPushes) {
  Observed observed(kQuick);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Table table(transport, {.name = "rows", .rows = 100, .width = 8});
    const std::vector<std::uint64_t> ids{1, 2, 3};
    std::vector<float> rows(ids.size() * 8);
    table.pull(ids, rows);
    table.push(ids, rows);
    table.assign(ids, rows);
  });
  observed.stop();
  auto ranks = count(*observed.kept);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks[rank].events[EventKind::pull], 1U);
    EXPECT_EQ(ranks[rank].bytes[EventKind::pull], 96U);
    EXPECT_EQ(ranks[rank].events[EventKind::push], 2U);
  }
}

}  // namespace
}  // namespace gradwire::test
