// Tests what sessions and tables report about themselves besides counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gathering.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using observe::Knowledge;
using observe::test::Observed;

const observe::CollectorOptions kOften{.interval = std::chrono::milliseconds(5)};

// Returns the last snapshots of the sources that know `what`.
template <typename What>
std::vector<Knowledge> latest(const Observed& observed, What&& what) {
  std::vector<Knowledge> known;
  std::vector<observe::SourceId> seen;
  auto snapshots = observed.kept->snapshots();
  std::reverse(snapshots.begin(), snapshots.end());  // the latest first
  for (const auto& snapshot : snapshots) {
    if (std::find(seen.begin(), seen.end(), snapshot.source) == seen.end() && what(snapshot.knowledge)) {
      seen.push_back(snapshot.source);
      known.push_back(snapshot.knowledge);
    }
  }
  return known;
}

// Returns values that differ, so that encoding drops something.
std::vector<float> gradient_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * 2654435761U + static_cast<std::size_t>(rank)) % 1000) / 1000.0F - 0.5F;
  }
  return values;
}

// There are two groups with one codec each; every bucket is reported in turn, one per second.
TEST(Knowledge, HealthOfGroupsAndMemory) {
  Observed observed(kOften);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> coarse = gradient_of(transport->rank(), 300'000);
    std::vector<float> fine = gradient_of(transport->rank(), 300'000);
    Session session(transport, Policy::parse("[defaults]\ncodec = \"int8\"\n[[rule]]\nmatch = \"coarse\"\ncodec = "
                                             "\"int2\"\nerror_feedback = \"on\"\n"));
    const TensorId first = session.add("coarse", {coarse.data(), coarse.size(), DType::f32});
    const TensorId second = session.add("fine", {fine.data(), fine.size(), DType::f32});
    for (int step = 0; step < 25; ++step) {
      const std::vector<float> gradient = gradient_of(transport->rank(), 300'000);
      std::copy(gradient.begin(), gradient.end(), coarse.begin());
      std::copy(gradient.begin(), gradient.end(), fine.begin());
      session.ready(first);
      session.ready(second);
      session.finish();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  observed.stop();
  const auto known = latest(observed, [](const Knowledge& each) { return !each.health.empty(); });
  ASSERT_EQ(known.size(), 2U);
  for (const Knowledge& rank : known) {
    ASSERT_EQ(rank.health.size(), 2U);
    double nmse_int2 = -1;
    double nmse_int8 = -1;
    for (const Knowledge::Health& group : rank.health) {
      (group.codec == "int2" ? nmse_int2 : nmse_int8) = group.nmse;
      EXPECT_EQ(group.residual_ratio > 0.01, group.codec == "int2") << group.group << ' ' << group.residual_ratio;
    }
    EXPECT_GT(nmse_int2, 1000 * nmse_int8);
    EXPECT_GT(nmse_int8, 1e-7);
    EXPECT_LT(nmse_int8, 1e-3);
    ASSERT_TRUE(rank.memory);
    EXPECT_GE(rank.memory->residual_bytes, 300'000 * sizeof(float));
    EXPECT_GT(rank.memory->frame_bytes, 10'000U);
    EXPECT_FALSE(rank.link);
  }
}

TEST(Knowledge, TheLinkThatAutoMeasured) {
  Observed observed(kOften);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values = gradient_of(transport->rank(), 300'000);
    Session session(transport, Policy::parse("[defaults]\ncodec = \"auto\"\n"));
    const TensorId id = session.add("values", {values.data(), values.size(), DType::f32});
    for (int step = 0; step < 5; ++step) {
      session.ready(id);
      session.finish();
    }
    for (const CodecSwitch& change : session.statistics().switches) {
      EXPECT_FALSE(change.cause.empty());
      EXPECT_EQ(change.cause == "start", change.step == 0) << change.reason;
    }
  });
  observed.stop();
  const auto known = latest(observed, [](const Knowledge& each) { return each.link.has_value(); });
  ASSERT_EQ(known.size(), 2U);
  EXPECT_GT(known[0].link->inter.bytes_per_second, 1e6);
  EXPECT_GT(known[0].link->inter.latency_seconds, 0);
}

TEST(Knowledge, AgesOfRows) {
  Observed observed(kOften);
  std::uint64_t oldest = 0;
  double mean = 0;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Table table(transport,
                {.rows = 1000, .width = 4, .staleness = 3, .read_own_writes = false, .cache_bytes = 1 << 20});
    const std::vector<std::uint64_t> ids{1, 2, 3, 4, 5, 6, 7, 8};
    std::vector<float> rows(ids.size() * 4);
    for (int clock = 0; clock < 12; ++clock) {
      if (clock == 11) {
        std::this_thread::sleep_for(std::chrono::milliseconds(600));  // counts are reported every half second
      }
      table.pull(ids, rows);
      table.push(ids, rows);
      table.tick();
    }
    table.synchronize();
    if (transport->rank() == 0) {
      oldest = table.statistics().maximum_age;
      mean = table.statistics().mean_age;
    }
  });
  observed.stop();
  const auto known = latest(observed, [](const Knowledge& each) { return each.rows.has_value(); });
  ASSERT_EQ(known.size(), 2U);
  bool found = false;
  for (const Knowledge& rank : known) {
    EXPECT_EQ(rank.rows->pulled, 96U);
    EXPECT_LE(rank.rows->received, rank.rows->pulled);
    found = found || (rank.rows->greatest_age == oldest &&
                      static_cast<double>(rank.rows->ages) == mean * static_cast<double>(rank.rows->pulled));
  }
  EXPECT_TRUE(found) << "as the table's own statistics: " << oldest << ", " << mean;
  EXPECT_GT(oldest, 0U);
}

}  // namespace
}  // namespace gradwire::test
