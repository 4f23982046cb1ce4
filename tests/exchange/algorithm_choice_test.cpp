// Tests which algorithm "auto" chooses, by world, size, codec and link.
#include "exchange/model/algorithm_choice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradwire::exchange {
namespace {

using exchange::Tiers;

constexpr std::uint64_t kKilobyte = 1024;
constexpr std::uint64_t kMegabyte = 1024 * kKilobyte;

Tiers nodes(const std::vector<std::uint32_t>& of_ranks) { return {of_ranks, static_cast<int>(of_ranks.size())}; }
Tiers rows(std::uint32_t ranks_per_node, int world) { return Tiers::in_rows(ranks_per_node, world); }

AlgorithmChoice choice(const Tiers& tiers, std::uint64_t bytes, const std::string& codec = "int8",
                       const std::string& link = "") {
  return choose_algorithm({.codec = CodecSpec::parse(codec), .count = bytes / 4, .native = true}, tiers,
                          link.empty() ? std::nullopt : std::optional(Link::parse(link)));
}

struct Case {
  std::string what;
  Tiers tiers;
  std::uint64_t bytes;
  std::string codec;
  std::string link;
  Algorithm wanted;
  std::string why;
};

// Mutations tried: uneven nodes are taken for even ones; the link's latency is left out; native sums are considered
// first.
TEST(AlgorithmChoice, TableOfWorlds) {
  const std::string none;
  const Tiers uneven = nodes({0, 0, 0, 1});
  const std::vector<Case> cases{
      {"2 x 2", rows(2, 4), 64 * kMegabyte, "int8", none, Algorithm::hierarchical, "2 nodes of 2 ranks"},
      {"4 x 2", rows(2, 8), 64 * kMegabyte, "int8", none, Algorithm::hierarchical, "4 nodes of 2 ranks"},
      {"2 x 4", rows(4, 8), 64 * kMegabyte, "int8", none, Algorithm::hierarchical, "2 nodes of 4 ranks"},
      {"2 x 2, ranks take turns", nodes({0, 1, 0, 1}), kMegabyte, "int4", none, Algorithm::hierarchical,
       "2 nodes of 2 ranks"},
      {"2 x 2, exact", rows(2, 4), 64 * kMegabyte, "exact", none, Algorithm::hierarchical, "2 nodes of 2 ranks"},
      {"2 x 2, small", rows(2, 4), 4 * kKilobyte, "int8", none, Algorithm::one_shot, "latency rules"},
      {"2 x 2, a fast link", rows(2, 4), 64 * kMegabyte, "int8", "200Gbit/s,2us", Algorithm::two_shot,
       "quickest by the cost model"},
      {"2 x 2, topk", rows(2, 4), 64 * kMegabyte, "topk(1%)+int8", none, Algorithm::two_shot,
       "topk sends less than sums inside nodes would take"},
      {"3 + 1", uneven, 64 * kMegabyte, "int8", none, Algorithm::two_shot,
       "nodes differ in size: nodes of 3 and 1 ranks"},
      {"3 + 1, small", uneven, 4 * kKilobyte, "int8", none, Algorithm::one_shot, "latency rules"},
      {"2 hosts", rows(1, 2), 64 * kMegabyte, "int8", none, Algorithm::two_shot, "each node has one rank"},
      {"2 hosts, packed", rows(1, 2), 64 * kMegabyte, "exact+zstd", none, Algorithm::two_shot,
       "each node has one rank"},
      {"2 hosts, small and packed", rows(1, 2), 4 * kKilobyte, "exact+zstd", none, Algorithm::one_shot,
       "latency rules"},
      {"2 hosts, small", rows(1, 2), 16 * kKilobyte, "int8", none, Algorithm::one_shot, "latency rules"},
      {"4 hosts", rows(1, 4), kMegabyte, "int8", none, Algorithm::two_shot, "each node has one rank"},
      {"4 hosts, small", rows(1, 4), 4 * kKilobyte, "int8", none, Algorithm::one_shot, "latency rules"},
      {"4 hosts, far", rows(1, 4), kMegabyte, "int8", "1Gbit/s,20ms", Algorithm::one_shot, "latency rules"},
      {"64 hosts, small", rows(1, 64), 4 * kKilobyte, "int8", none, Algorithm::two_shot, "each node has one rank"},
      {"one host", rows(4, 4), kMegabyte, "int8", none, Algorithm::two_shot, "all ranks are on one node"},
      {"one host, exact", rows(4, 4), kMegabyte, "exact", none, Algorithm::dense, "nothing to compress"},
      {"4 hosts, exact", rows(1, 4), kMegabyte, "exact", none, Algorithm::dense, "nothing to compress"},
      {"2 x 2, exact and small", rows(2, 4), 32 * kKilobyte, "exact", none, Algorithm::dense, "nothing to compress"},
      {"one rank", rows(1, 1), kMegabyte, "int8", none, Algorithm::two_shot, "one rank"},
  };
  for (const Case& c : cases) {
    const AlgorithmChoice got = choice(c.tiers, c.bytes, c.codec, c.link);
    EXPECT_EQ(got.algorithm, c.wanted) << c.what << ": " << to_string(got.algorithm);
    EXPECT_EQ(got.why, c.why) << c.what;
  }
}

// A second hop belongs to an owner, so no algorithm without owners is chosen.
TEST(AlgorithmChoice, ANamedSecondHopIsKept) {
  const AllReduce small{.codec = "int8", .second_hop = CodecSpec::parse("bf16"), .count = 256, .native = true};
  EXPECT_EQ(choose_algorithm(small, rows(1, 2), std::nullopt).algorithm, Algorithm::two_shot);
  const AllReduce exact{.second_hop = CodecSpec::parse("int8"), .count = 1 << 20, .native = true};
  EXPECT_EQ(choose_algorithm(exact, rows(1, 2), std::nullopt).algorithm, Algorithm::two_shot);
}

// A sum that must not be the library's own, as under deterministic = true, is made from frames.
TEST(AlgorithmChoice, NoNativeSumWhereItMayNotBe) {
  for (const std::uint64_t count : {256U, 1U << 20}) {
    for (const Tiers& tiers : {rows(1, 4), rows(4, 4), rows(2, 4)}) {
      const AllReduce call{.count = count, .native = false};
      EXPECT_NE(choose_algorithm(call, tiers, std::nullopt).algorithm, Algorithm::dense);
    }
  }
}

// With growing size the choice changes at most once, from the best for latency to the best for bandwidth.
TEST(AlgorithmChoice, LargerMessagesNeverReturnToOneLatency) {
  for (const char* link : {"", "100Mbit/s,100us", "10Gbit/s,30us", "1Gbit/s,20ms", "100Gbit/s,3us"}) {
    for (const Tiers& tiers : {rows(1, 2), rows(1, 4), rows(2, 4), rows(4, 8), rows(2, 8), rows(8, 64), rows(4, 4)}) {
      for (const char* codec : {"bf16", "int8", "int4", "sign", "topk(1%)+int8"}) {
        bool large = false;
        for (std::uint64_t bytes = kKilobyte; bytes <= 1024 * kMegabyte; bytes *= 2) {
          const bool one_shot = choice(tiers, bytes, codec, link).algorithm == Algorithm::one_shot;
          EXPECT_FALSE(large && one_shot) << codec << " " << link << " " << tiers.describe() << " " << bytes;
          large = large || !one_shot;
        }
      }
    }
  }
}

TEST(AlgorithmChoice, IsSaidBySize) {
  const auto text = [](const Tiers& tiers, const std::string& codec) {
    return algorithms_by_size({.codec = CodecSpec::parse(codec), .native = true}, tiers, std::nullopt);
  };
  EXPECT_EQ(text(rows(2, 4), "exact"), "dense up to 32KiB, hierarchical above");
  EXPECT_EQ(text(rows(4, 4), "exact"), "dense");
}

}  // namespace
}  // namespace gradwire::exchange
