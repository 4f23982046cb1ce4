// Tests the chunk and bucket sizes that the cost model chooses, and how a plan uses them.
#include "exchange/model/sizes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "plan/plan.hpp"

namespace gradwire::exchange {
namespace {

using ::testing::HasSubstr;

constexpr double kElements = 64e6;
constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

Cluster link(double rate, double latency) { return {.ranks = 4, .ranks_per_node = 1, .inter = {latency, rate}}; }

Way bytes_at(double seconds_an_element) {
  Way way;
  way.first = way.second = {1, seconds_an_element, seconds_an_element};
  return way;
}

TEST(Sizes, ChunksGrowWithTheCostOfAMessage) {
  std::uint64_t last = 0;
  for (double latency = 1e-8; latency <= 1e-5; latency *= 2) {
    const std::uint64_t chunk = best_chunk_bytes(link(1e10, latency), bytes_at(1e-10), kElements);
    EXPECT_GE(chunk, last) << latency;
    last = chunk;
  }
  EXPECT_GT(last, kDefaultChunkBytes);
  // A long link costs no work.
  EXPECT_EQ(best_chunk_bytes(link(1e10, 1e-4), bytes_at(1e-10), kElements),
            best_chunk_bytes(link(1e10, 1e-5), bytes_at(1e-10), kElements));
  // Messages are free, and codecs take as long as the wire: the smaller the better. With free codecs nothing overlaps.
  EXPECT_EQ(best_chunk_bytes(link(1e9, 0), bytes_at(0.5e-9), 1e6), 32 * kKiB);
  EXPECT_EQ(best_chunk_bytes(link(1e9, 0), bytes_at(0), 1e6), kDefaultChunkBytes);
}

TEST(Sizes, ChunksGrowWithWhatIsInFlight) {
  EXPECT_EQ(least_chunk_bytes(link(1e9, 1e-3)), kDefaultChunkBytes);
  EXPECT_EQ(least_chunk_bytes(link(1e9, 40e-3)), 128 * kKiB);
  EXPECT_EQ(best_chunk_bytes(link(1e9, 40e-3), bytes_at(0), kElements) % (128 * kKiB), 0U);
  EXPECT_EQ(least_chunk_bytes(link(1e11, 1)), kMiB);
  Cluster little = link(1e11, 1);
  little.in_flight_bytes = 64e6;
  EXPECT_EQ(least_chunk_bytes(little), kDefaultChunkBytes);
  EXPECT_EQ(window_of(Cluster{.ranks = 4, .ranks_per_node = 2, .inter = {0.1, 8e6}}), 500'000U);
  EXPECT_EQ(window_of(Cluster{}), 0U) << "unlimited";
}

TEST(Sizes, ChunksAreWithinAPercentOfTheBest) {
  for (const double latency : {1e-7, 1e-6, 1e-5}) {
    const Cluster cluster = link(1e9, latency);
    const Way way = bytes_at(1e-9);
    const auto seconds = [&](std::uint64_t chunk) {
      return way_cost(cluster, way, kElements, static_cast<double>(chunk)).total +
             1.5 * kElements / static_cast<double>(chunk) * latency;
    };
    const std::uint64_t best = best_chunk_bytes(cluster, way, kElements);
    for (std::uint64_t chunk = 32 * kKiB; chunk <= kMiB; chunk *= 2) {
      EXPECT_LE(seconds(best), 1.01 * seconds(chunk)) << chunk;
    }
  }
}

TEST(Sizes, BucketsGrowWithLatencyAndWithTheLink) {
  std::uint64_t last = 0;
  for (double latency = 1e-6; latency < 1; latency *= 4) {
    const std::uint64_t bucket = best_bucket_bytes(link(1e8, latency), bytes_at(0), kElements);
    EXPECT_GE(bucket, last) << latency;
    last = bucket;
  }
  EXPECT_EQ(last, 64 * kMiB);
  last = 0;
  for (double rate = 1e6; rate < 1e11; rate *= 4) {
    const std::uint64_t bucket = best_bucket_bytes(link(rate, 1e-5), bytes_at(0), kElements);
    EXPECT_GE(bucket, last) << rate;
    last = bucket;
  }
  EXPECT_EQ(best_bucket_bytes(link(1e6, 0), bytes_at(0), kElements), kMiB);
}

TEST(Sizes, PlansTakeBucketsFromTheLinkOfThePolicy) {
  const std::vector<TensorInfo> tensors(64, {"", 1 << 20, DType::f32, 1});
  const auto plan_of = [&](const std::string& more) {
    return plan::make_plan(Policy::parse("[defaults]\ncodec = \"int8\"\n[bucket]\nbytes = \"auto\"\n" + more), tensors,
                           {.world_size = 4});
  };
  const plan::Plan slow = plan_of("[link]\nbandwidth = \"100Mbit/s\"\nlatency = \"20us\"");
  const plan::Plan fast = plan_of("[link]\nbandwidth = \"100Gbit/s\"\nlatency = \"20us\"");
  EXPECT_LT(slow.bucket_bytes, fast.bucket_bytes);
  EXPECT_GT(slow.buckets.size(), fast.buckets.size());
  EXPECT_NE(slow.fingerprint(), fast.fingerprint());
  EXPECT_THAT(fast.explain(), HasSubstr("by the cost model"));
}

TEST(Sizes, PoliciesMadeInCodeAreChecked) {
  const auto error_of = [](const auto& change) -> std::string {
    Policy policy = Policy::automatic();
    change(policy);
    try {
      (void)plan::make_plan(policy, {{"w", 100, DType::f32, 1}}, {.world_size = 2});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of([](Policy&) {}), "no error");
  EXPECT_THAT(error_of([](Policy& p) { p.bucket_bytes = 0; }), HasSubstr("bytes = \"auto\" needs [link]"));
  EXPECT_THAT(error_of([](Policy& p) { p.link = Link{}; }), HasSubstr("the link carries 0 bytes a second"));
  EXPECT_THAT(error_of([](Policy& p) { p.auto_options.window = 0; }), HasSubstr("a window of 0 steps"));
  EXPECT_THAT(error_of([](Policy& p) { p.auto_options.gain = -1; }), HasSubstr("a gain and a cost from 0 on"));
  EXPECT_THAT(error_of([](Policy& p) { p.auto_options.cost = -1; }), HasSubstr("a cost of -1"));
}

}  // namespace
}  // namespace gradwire::exchange
