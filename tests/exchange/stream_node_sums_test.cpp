// Tests hierarchical where a library sums inside nodes. The reference takes the nodes' sums as the library gave them,
// and encodes, adds and decodes one shard after the other by the host's codecs: results and residuals must have its
// bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "node_sums_harness.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire::test {
namespace {

using exchange::Tiers;
using ::testing::HasSubstr;

constexpr std::array kOrders{NodeOrder::ascending, NodeOrder::descending, NodeOrder::tree};
constexpr std::array<std::pair<int, int>, 6> kNodes{{{2, 2}, {2, 3}, {2, 4}, {3, 2}, {4, 3}, {3, 4}}};

// Mutation tried: the owner adds the nodes in the reverse order.
TEST(StreamNodeSums, HaveTheHostsBitsFromTheNodesSumsOn) {
  const std::array codecs{"int8", "int4", "bf16", "fp8", "topk(5%)+int8", "exact", "int2"};
  const std::array<std::uint64_t, 4> counts{20 * 4096 + 17, 5000, 9 * 4096, 64 * 12};
  unsigned at = 0;
  for (const auto& [nodes, each] : kNodes) {
    for (const NodeOrder order : kOrders) {
      for (const char* codec : codecs) {
        ++at;
        const bool exact = std::string(codec) == "exact";
        compare_with_host({.nodes = nodes,
                           .each = each,
                           .in_turns = at % 2 == 0,
                           .order = order,
                           .codec = CodecSpec::parse(codec),
                           .second = CodecSpec::parse(at % 5 == 0 ? "int4" : codec),
                           .inside = !exact && at % 4 == 1 ? CodecSpec::parse("bf16") : CodecSpec::exact(),
                           .dtype = std::array{DType::f32, DType::bf16, DType::f16, DType::f64}[at / 3 % 4],
                           .count = counts[at % counts.size()],
                           .reduction = at % 2 == 0 ? Reduction::mean : Reduction::sum,
                           .zero_rank = at % 6 == 0 ? 1 : -1,
                           .step = at,
                           .chunk_bytes = at % 3 == 0 ? 1U << 12 : 1U << 24},
                          at);
        if (HasFailure()) {
          return;
        }
      }
    }
  }
}

TEST(StreamNodeSums, KeepResidualsAtTheNodesSumAndTheOwnerAlone) {
  unsigned at = 0;
  for (const auto& [nodes, each] : kNodes) {
    for (const char* codec : {"int4", "topk(5%)+int8", "sign"}) {
      ++at;
      NodeCall call{.nodes = nodes,
                    .each = each,
                    .order = kOrders[at % 3],
                    .codec = CodecSpec::parse(codec),
                    .second = CodecSpec::parse(at % 4 == 0 ? "exact" : codec),
                    .count = 20 * 4096 + 17,
                    .reduction = at % 2 == 0 ? Reduction::mean : Reduction::sum,
                    .feedback = true,
                    .preconditioned = at % 5 < 2,
                    .chunk_bytes = at % 2 == 0 ? 1U << 11 : 1U << 24};
      const exchange::ResidualSites keeps = call.resolve(0).call.residuals.keeps;
      EXPECT_FALSE(keeps.local);
      EXPECT_TRUE(keeps.intra);
      EXPECT_EQ(keeps.owner, call.second != CodecSpec::exact());
      NodeOutcome last = compare_with_host(call, at);
      call.held.any = true;
      for (call.step = 1; call.step < 3; ++call.step) {
        last = compare_with_host(call, at + call.step, &last);
      }
      std::uint64_t all = 0;
      for (const std::vector<float>& residual : last.residuals) {
        all += residual.size();
        EXPECT_TRUE(std::any_of(residual.begin(), residual.end(), [](float x) { return x != 0; }));
      }
      EXPECT_EQ(all, call.count * static_cast<std::uint64_t>(nodes)) << "each node keeps one for each element";
      if (HasFailure()) {
        return;
      }
    }
  }
}

// What steps with feedback left out arrives with a step of exact values, and is then zero. Mutation tried: residuals of
// the own shard are folded without the divisor.
TEST(StreamNodeSums, AnExactStepBringsWhatResidualsHold) {
  unsigned at = 0;
  for (const bool weighted : {false, true}) {
    for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
      for (const bool by_scale : {false, true}) {
        NodeCall call{.nodes = 3,
                      .each = 2,
                      .order = kOrders[++at % 3],
                      .codec = CodecSpec::parse("int4"),
                      .second = CodecSpec::parse("int4"),
                      .count = 9 * 4096 + 1,
                      .reduction = reduction,
                      .weighted = weighted,
                      .feedback = true,
                      .preconditioned = by_scale,
                      .chunk_bytes = 1 << 12};
        SCOPED_TRACE(call.text());
        NodeOutcome last(call);
        std::vector<double> wanted(call.count);
        std::vector<double> got(call.count);
        const auto add = [](std::vector<double>& to, const std::vector<double>& more) {
          std::transform(to.begin(), to.end(), more.begin(), to.begin(), std::plus<>());
        };
        for (call.step = 0; call.step < 4; ++call.step) {
          if (call.step == 3) {
            call.codec = call.second = CodecSpec::exact();
            call.feedback = false;
            call.preconditioned = false;
          }
          call.held.any = call.step > 0;
          NodeOutcome next(call, &last);
          add(wanted, true_result(call, next));
          run_in_nodes(call, next, at);
          add(got, numbers(next.ranks[0].input, call.dtype));
          last = std::move(next);
        }
        EXPECT_LE(relative_error(got, wanted), by_scale ? 0.01 : 1e-6);  // int4 rotates elements of all scales in f32
        for (const std::vector<float>& residual : last.residuals) {
          EXPECT_TRUE(std::all_of(residual.begin(), residual.end(), [](float x) { return x == 0; }));
        }
      }
    }
  }
}

// Residuals of other algorithms, from a loaded state, are added to the inputs.
TEST(StreamNodeSums, BringWhatOtherAlgorithmsHeld) {
  for (const bool weighted : {false, true}) {
    NodeCall call{.codec = CodecSpec::exact(),
                  .second = CodecSpec::exact(),
                  .count = 5000,
                  .reduction = Reduction::mean,
                  .weighted = weighted,
                  .held = {.any = true, .moved = true}};
    NodeOutcome outcome(call);
    std::vector<double> wanted = true_result(call, outcome);
    double weights = 0;
    for (int rank = 0; rank < call.world(); ++rank) {
      weights += weighted ? Call::weight(rank) : 1;
    }
    for (RankMemory& memory : outcome.ranks) {
      memory.local.assign(call.count, 0.5F);
      memory.owner.assign(100, 0.25F);
      memory.owner_first = 300;
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      wanted[i] += 0.5 * call.world() / weights + (i >= 300 && i < 400 ? 0.25 * call.world() : 0);
    }
    run_in_nodes(call, outcome, 1);
    EXPECT_LE(relative_error(numbers(outcome.ranks[3].input, call.dtype), wanted), 1e-6);
  }
}

NodeCall few_lanes(std::uint64_t chunk_bytes, bool weighted) {
  return {.nodes = 2,
          .each = 2,
          .codec = CodecSpec::parse("int8"),
          .second = CodecSpec::parse("int4"),
          .count = 12 * 4096 + 100,
          .reduction = Reduction::mean,
          .weighted = weighted,
          .chunk_bytes = chunk_bytes};
}

TEST(StreamNodeSums, EveryEventIsNeeded) {
  for (const auto& [lanes, chunk_bytes] : {std::pair{1U, 1U << 24}, std::pair{3U, 1U << 12}, std::pair{7U, 1792U}}) {
    for (const bool weighted : {false, true}) {
      const NodeCall call = few_lanes(chunk_bytes, weighted);
      ASSERT_EQ(call.partition().lanes(), lanes);
      NodeOutcome right(call);
      std::uint64_t waits = 0;
      run_in_nodes(call, right, 1, {}, &waits);
      ASSERT_GE(waits, 6U);
      for (std::uint64_t wait = 0; wait < waits; ++wait) {
        NodeOutcome outcome(call);
        const std::string error =
            error_of([&] { run_in_nodes(call, outcome, 1, {.of_rank_1 = {.drop_wait = wait}}); }).what();
        EXPECT_THAT(error, HasSubstr("no event is between them"))
            << "wait " << wait << " of " << waits << ", " << call.text();
      }
    }
  }
}

TEST(StreamNodeSums, AMissingEventSpoilsResultsInSomeOrder) {
  const NodeCall call = few_lanes(1 << 24, false);
  NodeOutcome right(call);
  std::uint64_t waits = 0;
  run_in_nodes(call, right, 1, {}, &waits);
  for (std::uint64_t wait = 0; wait < waits; ++wait) {
    bool seen = false;
    for (unsigned seed = 0; seed < 60 && !seen; ++seed) {
      NodeOutcome outcome(call);
      try {
        run_in_nodes(call, outcome, seed, {.of_rank_1 = {.drop_wait = wait}, .checks_races = false});
        for (std::size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
          seen = seen || outcome.ranks[rank].input != right.ranks[rank].input;
        }
      } catch (const Error&) {
        seen = true;
      }
    }
    EXPECT_TRUE(seen) << "wait " << wait;
  }
}

TEST(StreamNodeSums, NeedNodesOfOneSizeAndABucketThatFits) {
  const auto name = [](const NodeCall& call, const std::vector<std::uint32_t>& nodes) {
    const auto tiers = std::make_shared<const Tiers>(nodes, static_cast<int>(nodes.size()));
    const exchange::CallRequest request{
        .algorithm = Algorithm::hierarchical, .codec = call.codec, .count = call.count, .native = {.in_nodes = true}};
    const exchange::Resolved resolved = exchange::resolve(request, {0, tiers->world_size(), tiers});
    EXPECT_EQ(resolved.call.node_sums.has_value(), resolved.schedule.name == "hierarchical all-reduce");
    return std::string(resolved.schedule.name);
  };
  const NodeCall call{.count = 5000};
  EXPECT_EQ(name(call, {0, 0, 1, 1}), "hierarchical all-reduce");
  EXPECT_EQ(name(call, {0, 0, 1}), "two_shot all-reduce");
  EXPECT_EQ(name(call, {0, 0, 0}), "two_shot all-reduce");
  EXPECT_EQ(name({.count = 255}, {0, 0, 1, 1}), "two_shot all-reduce");
  EXPECT_EQ(name({.count = 256}, {0, 0, 1, 1}), "hierarchical all-reduce");
  EXPECT_THAT(error_of([] {
                static_cast<void>(NodeCall{.inside = CodecSpec::parse("int8"), .count = 5000}.resolve(0));
              }).what(),
              HasSubstr("in f32 or bf16, not by int8"));
}

TEST(TierPartition, LargeBucketsHaveSeveralLanes) {
  const Tiers tiers = Tiers::in_rows(8, 64);
  const auto lanes = [&](std::uint64_t count, std::optional<std::uint64_t> asked = std::nullopt) {
    return exchange::TierPartition(count, tiers, exchange::stream_chunks(64, asked)).lanes();
  };
  constexpr std::uint64_t kMi = 1 << 20;
  EXPECT_EQ(lanes(16 * kMi - 1), 1U);
  EXPECT_EQ(lanes(16 * kMi), 2U);
  EXPECT_EQ(lanes(48 * kMi - 1), 2U);
  EXPECT_EQ(lanes(48 * kMi), 3U);
  EXPECT_EQ(lanes(256 * kMi), 3U);
  EXPECT_EQ(lanes(1024 * kMi), 8U) << "so that the numbers of a lane have 32 bits";
  EXPECT_EQ(lanes(48 * kMi, 1 << 20), 1U);
  EXPECT_EQ(lanes(48 * kMi, 1 << 18), 3U);
}

// Mutation tried: a lane's residuals begin a unit early.
TEST(TierPartition, CoversEachElementOnceInEqualParts) {
  for (const auto& [nodes, each] : kNodes) {
    const NodeCall shape{.nodes = nodes, .each = each};
    const auto world = static_cast<std::uint64_t>(shape.world());
    for (const std::uint64_t count : {world * 64, world * 64 + 1, world * 64 * 7 + 63, std::uint64_t{300001}}) {
      for (const std::uint64_t bytes : {1U << 12, 1U << 14, 1U << 24}) {
        NodeCall call = shape;
        call.count = count;
        call.chunk_bytes = bytes;
        SCOPED_TRACE(call.text());
        const exchange::TierPartition partition = call.partition();
        std::uint64_t next = 0;
        std::uint32_t tile = 0;
        std::vector<std::uint64_t> before(static_cast<std::size_t>(each));
        for (std::uint64_t lane = 0; lane < partition.lanes(); ++lane) {
          EXPECT_EQ(partition.whole(lane).first, next);
          for (std::uint64_t shard = 0; shard < world; ++shard) {
            const exchange::Chunk chunk = partition.shards(lane).chunk(shard);
            const auto place = static_cast<int>(shard / static_cast<std::uint64_t>(nodes));
            const exchange::Chunk part = partition.part(place, lane);
            EXPECT_EQ(chunk, partition.shards_of(place, lane).chunk(shard % static_cast<std::uint64_t>(nodes)));
            EXPECT_EQ(chunk.first, next);
            EXPECT_GT(chunk.count, 0U);
            EXPECT_EQ(chunk.first % 64, 0U);
            EXPECT_GE(chunk.first_tile, tile);
            tile = chunk.first_tile + (chunk.count + 4095) / 4096;
            if (shard % static_cast<std::uint64_t>(nodes) == 0) {
              EXPECT_EQ(part.first, chunk.first);
              EXPECT_EQ(part.first,
                        partition.whole(lane).first + static_cast<std::uint64_t>(place) * partition.each(lane));
              EXPECT_EQ(before[static_cast<std::size_t>(place)], partition.before(lane));
              before[static_cast<std::size_t>(place)] += part.count;
            }
            next += chunk.count;
          }
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::test
