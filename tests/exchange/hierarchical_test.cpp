// Tests hierarchical: every rank gets the same bits, results are within the codec's bound of the flat ones, the bytes
// of each tier follow the schedule, and without a hierarchy there is a report or refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "inputs.hpp"
#include "node_placements.hpp"
#include "tests/support/faulty_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using exchange::Tiers;
using ::testing::HasSubstr;

struct Reduced {
  std::vector<Values> results;
  Statistics statistics;  // of all ranks
};

Reduced reduce(std::vector<std::shared_ptr<Transport>> transports, const std::vector<std::vector<double>>& inputs,
               DType dtype, const CallOptions& options, const CommunicatorOptions& communicator_options = {}) {
  Reduced reduced{std::vector<Values>(inputs.size(), Values(dtype, inputs[0].size())), {}};
  std::mutex mutex;
  run_ranks(std::move(transports), [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    Communicator communicator(transport, communicator_options);
    Values values(dtype, inputs[rank]);
    CallOptions mine = options;
    mine.weight = mine.weight ? std::optional(weight_of(transport->rank())) : std::nullopt;
    const Statistics statistics = communicator.all_reduce(values.view(), mine);
    EXPECT_TRUE(values.guarded());
    const std::lock_guard lock(mutex);
    reduced.results[rank] = values;
    reduced.statistics.add(statistics);
  });
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    EXPECT_TRUE(reduced.results[rank].bytes() == reduced.results[0].bytes()) << "rank " << rank << " differs";
  }
  return reduced;
}

Reduced reduce(const Nodes& nodes, const std::vector<std::vector<double>>& inputs, DType dtype,
               const CallOptions& options) {
  return reduce(make_inproc_world(world_of(nodes), nodes), inputs, dtype, options);
}

std::vector<std::vector<double>> gaussians(const Nodes& nodes, std::uint64_t count) {
  std::vector<std::vector<double>> inputs;
  for (int rank = 0; rank < world_of(nodes); ++rank) {
    inputs.push_back(gaussian(count, rank));
  }
  return inputs;
}

double norm_of(const std::vector<std::vector<double>>& inputs) {
  double norm = 0;
  for (const auto& input : inputs) {
    for (const double x : input) {
      norm += x * x;
    }
  }
  return std::sqrt(norm);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(squares);
}

// Mutation tried: a node's sum is divided like a result.
TEST(Hierarchical, EqualsFlatWithinTheCodecsBoundOnEveryRank) {
  for (const Nodes& nodes : kPlacements) {
    for (const std::uint64_t count : kCounts) {
      const auto inputs = gaussians(nodes, count);
      for (const char* name : {"int8", "fp8", "int4"}) {
        SCOPED_TRACE(text_of(nodes) + " count " + std::to_string(count) + " " + name);
        const CodecSpec codec = CodecSpec::parse(name);
        CallOptions options{
            .codec = codec, .algorithm = Algorithm::two_shot, .reduction = Reduction::mean, .chunk_bytes = 1 << 14};
        const std::vector<double> flat = reduce(nodes, inputs, DType::f32, options).results[0].doubles();
        options.algorithm = Algorithm::hierarchical;
        const std::vector<double> tiered = reduce(nodes, inputs, DType::f32, options).results[0].doubles();
        const double encoding = single_encoding_error(codec::Codec(codec, DType::f32), gaussian(4096, 99));
        const double bound = (count < 64 ? 8 : 4) * encoding * norm_of(inputs) / world_of(nodes);
        EXPECT_LE(distance(tiered, flat), bound + 1e-6);
        if (count > 60000) {
          EXPECT_GT(distance(tiered, flat), 0) << "the bits are the same: was it flat?";
        }
      }
    }
  }
}

TEST(Hierarchical, ExactIsTheExactSumInEveryDtype) {
  for (const Nodes& nodes : kPlacements) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
      for (const std::uint64_t count : {1U, 4097U, 60001U}) {
        SCOPED_TRACE(text_of(nodes) + " " + std::string(to_string(dtype)) + " count " + std::to_string(count));
        std::vector<std::vector<double>> inputs;
        std::vector<double> sum(count);
        for (int rank = 0; rank < world_of(nodes); ++rank) {
          inputs.push_back(integers(count, rank));
          std::transform(sum.begin(), sum.end(), inputs.back().begin(), sum.begin(), std::plus<>());
        }
        const Reduced reduced =
            reduce(nodes, inputs, dtype,
                   {.codec = CodecSpec::parse("exact"), .algorithm = Algorithm::hierarchical, .chunk_bytes = 1 << 14});
        EXPECT_EQ(reduced.results[0].doubles(), sum);
      }
    }
  }
}

// Mutation tried: sums over nodes travel in the tensor's own dtype; then they are Inf.
TEST(Hierarchical, ANodesSumMayBeBeyondSixteenBits) {
  const Nodes nodes{0, 0, 0, 0, 1, 1, 1, 1};
  const std::vector<std::vector<double>> inputs(8, std::vector<double>(5000, 30000.0));
  for (const char* name : {"exact", "int8", "topk(100%)+exact"}) {
    const Reduced reduced = reduce(nodes, inputs, DType::f16,
                                   {.codec = CodecSpec::parse(name),
                                    .algorithm = Algorithm::hierarchical,
                                    .reduction = Reduction::mean,
                                    .second_hop = CodecSpec::parse("exact")});
    for (const double x : reduced.results[0].doubles()) {
      ASSERT_NEAR(x, 30000, 300) << name;
    }
  }
}

TEST(Hierarchical, WeightedSumsAndMeans) {
  for (const Nodes& nodes : kPlacements) {
    for (const char* name : {"exact", "int8"}) {
      for (const char* intra : {"exact", "bf16"}) {
        for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
          SCOPED_TRACE(text_of(nodes) + " " + name + " intra " + intra);
          const auto inputs = gaussians(nodes, 20011);
          std::vector<double> wanted(20011);
          double total = 0;
          for (int rank = 0; rank < world_of(nodes); ++rank) {
            total += weight_of(rank);
            for (std::size_t i = 0; i < wanted.size(); ++i) {
              wanted[i] += weight_of(rank) * inputs[static_cast<std::size_t>(rank)][i];
            }
          }
          for (double& x : wanted) {
            x /= reduction == Reduction::mean ? total : 1;
          }
          const Reduced reduced = reduce(nodes, inputs, DType::f32,
                                         {.codec = CodecSpec::parse(name),
                                          .algorithm = Algorithm::hierarchical,
                                          .reduction = reduction,
                                          .weight = 1,  // reduce() sets each rank's own
                                          .chunk_bytes = 1 << 13,
                                          .intra_codec = CodecSpec::parse(intra)});
          EXPECT_LE(relative_error(reduced.results[0].doubles(), wanted), std::string(name) == "exact" ? 1e-6 : 0.03);
        }
      }
    }
  }
}

TEST(Hierarchical, ChunkSizeAndArrivalOrderChangeNoBit) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const Nodes& nodes : kPlacements) {
    const auto inputs = gaussians(nodes, 100003);
    CallOptions options{
        .codec = CodecSpec::parse("int4"), .algorithm = Algorithm::hierarchical, .chunk_bytes = 1 << 13};
    const std::string wanted = reduce(nodes, inputs, DType::f32, options).results[0].bytes();
    for (const std::uint64_t chunk_bytes : {1ULL << 15, 1ULL << 18}) {
      options.chunk_bytes = chunk_bytes;
      std::mt19937_64 random(seed);
      auto late = make_inproc_world(world_of(nodes), nodes);
      for (auto& transport : late) {
        std::vector<transport::Fault> faults;
        for (int i = 0; i < 20; ++i) {
          faults.push_back({.kind = transport::Fault::Kind::delay,
                            .nth = random() % 200,
                            .delay = std::chrono::microseconds(random() % 1000)});
        }
        transport = transport::make_faulty(transport, std::move(faults));
      }
      EXPECT_TRUE(reduce(std::move(late), inputs, DType::f32, options).results[0].bytes() == wanted);
    }
  }
}

// The expected bytes of each tier come from the schedule. Mutations tried: a schedule falls back to two_shot; bytes of
// both tiers are counted as one.
TEST(Hierarchical, BytesOfEachTierAreThoseOfTheSchedule) {
  constexpr std::uint64_t kCount = 300001;
  for (const Nodes& nodes : kPlacements) {
    SCOPED_TRACE(text_of(nodes));
    const Tiers tiers(nodes, world_of(nodes));
    const exchange::HopCodecs codecs = codecs_of("bf16", "int8");
    std::uint64_t inside = 0;
    std::uint64_t between = 0;
    for (const auto& [rank, lane, instruction] :
         record_world(nodes, kCount, false, 4, codecs, exchange::ChunkSize::as_asked(1 << 15))) {
      if (instruction.opcode == exchange::Opcode::send) {
        (tiers.node_of(rank) == tiers.node_of(instruction.peer) ? inside : between) +=
            codecs.of(instruction.hop).frame_bytes(instruction.chunk.count);
      }
    }
    CallOptions options{
        .codec = CodecSpec::parse("int8"), .algorithm = Algorithm::hierarchical, .chunk_bytes = 1 << 15};
    const auto inputs = gaussians(nodes, kCount);
    const Statistics tiered = reduce(nodes, inputs, DType::f32, options).statistics;
    EXPECT_EQ(tiered.bytes_intra, inside);
    EXPECT_EQ(tiered.bytes_inter, between);
    EXPECT_EQ(tiered.bytes_sent, inside + between);
    options.algorithm = Algorithm::two_shot;
    const Statistics flat = reduce(nodes, inputs, DType::f32, options).statistics;
    EXPECT_EQ(flat.bytes_sent, flat.bytes_intra + flat.bytes_inter);
    // A flat reduction sends each rank's part of each shard to other nodes and back; this one sends one sum per node.
    const auto per_node = static_cast<double>(tiers.members(0).size());
    EXPECT_NEAR(static_cast<double>(flat.bytes_inter) / static_cast<double>(tiered.bytes_inter), per_node, 0.02);
  }
}

TEST(Hierarchical, CodecsOfEachTierAreThoseAskedFor) {
  const Nodes nodes{0, 0, 1, 1};
  const auto inputs = gaussians(nodes, 300000);
  const auto bytes = [&](const char* intra) {
    CallOptions options{.codec = CodecSpec::parse("int8"), .algorithm = Algorithm::hierarchical};
    if (intra != nullptr) {
      options.intra_codec = CodecSpec::parse(intra);
    }
    return reduce(nodes, inputs, DType::f32, options).statistics;
  };
  const Statistics usual = bytes(nullptr);
  EXPECT_EQ(usual.bytes_intra, bytes("bf16").bytes_intra);
  EXPECT_GT(bytes("exact").bytes_intra, usual.bytes_intra * 3 / 2);
  EXPECT_LT(bytes("int4").bytes_intra, usual.bytes_intra * 2 / 3);
  EXPECT_NEAR(static_cast<double>(bytes("exact").bytes_inter), static_cast<double>(usual.bytes_inter), 5000);
}

// NaN and Inf of one rank reach every rank through each encoding, and change nothing outside their block.
TEST(Hierarchical, NonfiniteValuesReachEveryRank) {
  const Nodes nodes{0, 0, 1, 1};
  for (int culprit = 0; culprit < 4; ++culprit) {
    auto inputs = gaussians(nodes, 4 * 4096);
    std::vector<double>& bad = inputs[static_cast<std::size_t>(culprit)];
    for (std::size_t shard = 0; shard < 4; ++shard) {
      bad[shard * 4096 + 7] = shard % 2 == 0 ? NAN : INFINITY;
    }
    const Reduced reduced =
        reduce(nodes, inputs, DType::f32, {.codec = CodecSpec::parse("int8"), .algorithm = Algorithm::hierarchical});
    const std::vector<double> got = reduced.results[0].doubles();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::isfinite(got[i]), i % 4096 >= 256) << i;
    }
    EXPECT_GT(reduced.statistics.nonfinite_frames, 0U);
  }
}

// The result is that of the flat algorithm bit for bit, and tiers() says why.
TEST(Hierarchical, WithoutEvenTiersItIsTwoShotAndSaysSo) {
  const std::vector<std::pair<Nodes, const char*>> cases{
      {{0, 0, 1}, "nodes of 2 and 1 ranks; hierarchical is two_shot here: nodes differ in size"},
      {{0, 0, 0, 1, 2, 2}, "nodes of 3, 1 and 2 ranks; hierarchical is two_shot here: nodes differ in size"},
      {{5, 5, 5, 5}, "1 node of 4 ranks; hierarchical is two_shot here: all ranks are on one node"},
      {{0, 1, 2}, "3 nodes of 1 rank; hierarchical is two_shot here: each node has one rank"},
      {{0}, "1 node of 1 rank; hierarchical is two_shot here: all ranks are on one node"}};
  for (const auto& [nodes, text] : cases) {
    SCOPED_TRACE(text_of(nodes));
    const auto inputs = gaussians(nodes, 30000);
    CallOptions options{.codec = CodecSpec::parse("topk(1%)+int8"), .algorithm = Algorithm::two_shot};
    const std::string flat = reduce(nodes, inputs, DType::f32, options).results[0].bytes();
    options.algorithm = Algorithm::hierarchical;
    EXPECT_TRUE(reduce(nodes, inputs, DType::f32, options).results[0].bytes() == flat);
    EXPECT_THAT(Communicator(make_inproc_world(world_of(nodes), nodes)[0]).tiers(), HasSubstr(text));
  }
}

// An open algorithm gives the same result as naming the chosen one, call by call; a reduce-scatter has no such choice.
// Mutation tried: the latest choice is kept for the next call of any size.
TEST(Hierarchical, AnOpenAlgorithmIsChosenForEachCall) {
  struct Open {
    Nodes nodes;
    std::size_t count;
    Algorithm wanted;
    std::string text;
  };
  const std::vector<Open> cases{
      {{0, 0, 1, 1}, 300000, Algorithm::hierarchical, "hierarchical: 2 nodes of 2 ranks"},
      {{0, 0, 1, 1}, 1000, Algorithm::one_shot, "one_shot: latency rules"},
      {{0, 0, 0, 1}, 300000, Algorithm::two_shot, "two_shot: nodes differ in size: nodes of 3 and 1 ranks"},
      {{0, 1}, 300000, Algorithm::two_shot, "two_shot: each node has one rank"}};
  for (const Open& c : cases) {
    const auto inputs = gaussians(c.nodes, c.count);
    CallOptions options{.codec = CodecSpec::parse("int8"), .algorithm = c.wanted};
    const std::string wanted = reduce(c.nodes, inputs, DType::f32, options).results[0].bytes();
    options = {};  // int8, with an open algorithm
    EXPECT_TRUE(reduce(c.nodes, inputs, DType::f32, options).results[0].bytes() == wanted) << c.text;
    run_ranks(make_inproc_world(world_of(c.nodes), c.nodes), [&](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport);
      EXPECT_EQ(communicator.latest_algorithm(), "");
      std::vector<float> small(100, 1.0F);
      communicator.all_reduce(view(small.data(), small.size()), options);
      std::vector<float> values(c.count, 1.0F);
      communicator.all_reduce(view(values.data(), values.size()), options);
      EXPECT_EQ(communicator.latest_algorithm(), c.text);
      const std::vector<std::uint64_t> counts(static_cast<std::size_t>(communicator.world_size()), 25);
      std::vector<float> part(25 * counts.size(), 1.0F);
      communicator.reduce_scatter(view(part.data(), part.size()), view(small.data(), 25), counts, options);
      communicator.all_reduce(view(small.data(), small.size()), {.algorithm = Algorithm::dense});
      EXPECT_EQ(communicator.latest_algorithm(), "dense");
    });
  }
}

TEST(Hierarchical, RanksPerNodeOverridesTheTransport) {
  const Nodes one{0, 0, 0, 0};
  const auto inputs = gaussians(one, 50000);
  const CallOptions options{.codec = CodecSpec::parse("int8"), .algorithm = Algorithm::hierarchical};
  const Reduced wanted = reduce({0, 0, 1, 1}, inputs, DType::f32, options);
  const Reduced got = reduce(make_inproc_world(4), inputs, DType::f32, options, {.ranks_per_node = 2});
  EXPECT_TRUE(got.results[0].bytes() == wanted.results[0].bytes());
  EXPECT_EQ(got.statistics.bytes_inter, wanted.statistics.bytes_inter);
}

TEST(Hierarchical, RanksPerNodeMustDivideTheWorld) {
  for (const std::uint32_t ranks : {0U, 3U, 8U}) {
    try {
      const Communicator communicator(make_inproc_world(4)[0], {.ranks_per_node = ranks});
      FAIL() << ranks;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("ranks_per_node is " + std::to_string(ranks) +
                                          ", which does not divide the 4 ranks of this job"));
    }
  }
  EXPECT_EQ(Communicator(make_inproc_world(1)[0], {.ranks_per_node = 2}).tiers().substr(0, 6), "1 node");
  EXPECT_THROW((void)make_inproc_world(3, {0, 1}), Error);
}

// One rank got other nodes: no rank reduces, and none hangs.
TEST(Hierarchical, RanksThatDisagreeAboutNodesAllFail) {
  const auto errors = run_ranks_catching(make_inproc_world(4), [](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(
        transport, {.timeout = std::chrono::seconds(20), .ranks_per_node = transport->rank() == 2 ? 1U : 2U});
    std::vector<float> values(1000);
    communicator.all_reduce(view(values.data(), values.size()), {.algorithm = Algorithm::hierarchical});
  });
  for (const std::exception_ptr& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("ranks disagree about which of them share a node: rank 0 has 0 0 1 1"));
      EXPECT_THAT(e.what(), HasSubstr("rank 2 has 0 1 2 3"));
    }
  }
}

// The ranks' choices would differ, and ranks would wait for each other. Mutation tried: only nodes are compared.
TEST(Hierarchical, RanksThatDisagreeAboutTheLinkAllFail) {
  const auto errors = run_ranks_catching(make_inproc_world(4, {0, 0, 1, 1}), [](const std::shared_ptr<Transport>& one) {
    const Link link = Link::parse(one->rank() == 2 ? "400Gbit/s,1us" : "1Gbit/s,50us");
    Communicator communicator(one, {.timeout = std::chrono::seconds(20), .link = link});
    std::vector<float> values(300000);
    communicator.all_reduce(view(values.data(), values.size()), {.algorithm = Algorithm::automatic});
  });
  for (const std::exception_ptr& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("ranks disagree about the link: rank 0 has 1Gbit/s,50us, rank 2 has 400Gbit/s"));
    }
  }
}

// If any message of any hop is lost or damaged, every rank gets an error within its timeout.
TEST(Hierarchical, FaultyPeersEndEveryRank) {
  using transport::Fault;
  for (const Fault& fault :
       {Fault{.kind = Fault::Kind::drop, .rank = 1, .nth = 30}, Fault{.kind = Fault::Kind::kill, .rank = 2, .nth = 0},
        Fault{.kind = Fault::Kind::kill, .rank = 2, .nth = 17},
        Fault{.kind = Fault::Kind::corrupt, .rank = 3, .nth = 9, .offset = 10},
        Fault{.kind = Fault::Kind::corrupt, .rank = 0, .nth = 21, .offset = 900},
        Fault{.kind = Fault::Kind::fail, .rank = 0, .nth = 15}}) {
    auto transports = make_inproc_world(4, {0, 0, 1, 1});
    for (auto& transport : transports) {
      transport = transport::make_faulty(transport, {fault});
    }
    const auto errors = run_ranks_catching(std::move(transports), [](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport, {.timeout = std::chrono::milliseconds(400), .checksum = true});
      Values values(DType::f32, gaussian(100000, transport->rank()));
      for (int call = 0; call < 3; ++call) {
        communicator.all_reduce(values.view(), {.algorithm = Algorithm::hierarchical, .chunk_bytes = 1 << 14});
      }
    });
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      EXPECT_TRUE(errors[rank]) << "rank " << rank << ", fault " << static_cast<int>(fault.kind) << " " << fault.nth;
    }
  }
}

}  // namespace
}  // namespace gradwire::test
