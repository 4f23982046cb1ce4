// Tests reduce_scatter, all_gather, broadcast and barrier: any counts, any world, lossy or exact, in place or not.
#include <gtest/gtest.h>

#include <numeric>

#include "codec/registry.hpp"
#include "inputs.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr int kWorldSizes[] = {1, 2, 3};  // the same paths; this build is up to 15 times slower
#else
constexpr int kWorldSizes[] = {1, 2, 3, 4, 7, 8};
#endif

std::vector<std::uint64_t> segment_counts(int world, std::uint64_t scale) {
  std::vector<std::uint64_t> counts;
  for (int rank = 0; rank < world; ++rank) {
    counts.push_back(rank == 1 ? 0 : scale + static_cast<std::uint64_t>(rank) * 37);
  }
  return counts;
}

std::uint64_t sum_of(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::uint64_t offset_of(const std::vector<std::uint64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::uint64_t{0});
}

View part(View whole, std::uint64_t offset, std::uint64_t count) {
  return {static_cast<std::byte*>(whole.data) + offset * element_bytes(whole.dtype), count, whole.dtype};
}

TEST(ReduceScatter, ExactSegmentsForAnyCounts) {
  for (const int world : kWorldSizes) {
    for (const std::uint64_t scale : {1ULL, 4096ULL, 30000ULL}) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE("world " + std::to_string(world) + " scale " + std::to_string(scale));
        const auto counts = segment_counts(world, scale);
        std::vector<double> wanted(sum_of(counts), 0);
        for (int rank = 0; rank < world; ++rank) {
          const auto input = integers(sum_of(counts), rank);
          for (std::size_t i = 0; i < wanted.size(); ++i) {
            wanted[i] += input[i];
          }
        }
        run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
          const int rank = transport->rank();
          const std::uint64_t count = counts[static_cast<std::size_t>(rank)];
          Communicator communicator(transport);
          Values input(DType::f32, integers(sum_of(counts), rank));
          Values output(DType::f32, count);
          const View target = in_place ? part(input.view(), offset_of(counts, rank), count) : output.view();
          communicator.reduce_scatter(input.view(), target, counts,
                                      {.codec = CodecSpec::parse("exact"), .chunk_bytes = 1 << 14});
          const auto all = in_place ? input.doubles() : output.doubles();
          const auto first = in_place ? offset_of(counts, rank) : 0;
          for (std::uint64_t i = 0; i < count; ++i) {
            ASSERT_EQ(all[first + i], wanted[offset_of(counts, rank) + i]) << i;
          }
          EXPECT_TRUE(output.guarded() && input.guarded());
        });
      }
    }
  }
}

TEST(ReduceScatter, LossyIsCloserThanTwoHops) {
  for (const codec::CodecEntry& entry : codec::codecs()) {
    const CodecSpec spec(entry.id);
    SCOPED_TRACE(spec.to_string());
    const std::vector<std::uint64_t> counts{9000, 8192, 1};
    std::vector<double> wanted(sum_of(counts), 0);
    double encoding = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const auto input = gaussian(sum_of(counts), rank);
      encoding = std::max(encoding, single_encoding_error(codec::Codec(spec, DType::f32), input));
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        wanted[i] += input[i] / 3;
      }
    }
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      Communicator communicator(transport);
      Values input(DType::f32, gaussian(sum_of(counts), rank));
      Values output(DType::f32, counts[static_cast<std::size_t>(rank)]);
      communicator.reduce_scatter(input.view(), output.view(), counts,
                                  {.codec = spec, .reduction = Reduction::mean, .chunk_bytes = 1 << 14});
      const auto first = static_cast<std::ptrdiff_t>(offset_of(counts, rank));
      const std::vector<double> mine(
          wanted.begin() + first,
          wanted.begin() + first + static_cast<std::ptrdiff_t>(counts[static_cast<std::size_t>(rank)]));
      if (mine.size() > 1) {
        EXPECT_LE(relative_error(output.doubles(), mine), 1.5 * encoding + 1e-6);
      }
    });
  }
}

TEST(AllGather, EveryRankGetsTheSameBytes) {
  for (const codec::CodecEntry& entry : codec::codecs()) {
    const CodecSpec spec(entry.id);
    for (const int world : kWorldSizes) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(spec.to_string() + " world " + std::to_string(world));
        const auto counts = segment_counts(world, 9000);
        std::vector<std::string> results(static_cast<std::size_t>(world));
        std::vector<double> wanted;
        for (int rank = 0; rank < world; ++rank) {
          const auto segment = gaussian(counts[static_cast<std::size_t>(rank)], rank);
          wanted.insert(wanted.end(), segment.begin(), segment.end());
        }
        const double encoding = single_encoding_error(codec::Codec(spec, DType::f32), wanted);
        run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
          const int rank = transport->rank();
          const std::uint64_t count = counts[static_cast<std::size_t>(rank)];
          Communicator communicator(transport);
          Values input(DType::f32, gaussian(count, rank));
          Values output(DType::f32, sum_of(counts));
          View source = input.view();
          if (in_place) {
            source = part(output.view(), offset_of(counts, rank), count);
            std::memcpy(source.data, input.view().data, count * 4);
          }
          communicator.all_gather(source, output.view(), counts, {.codec = spec, .chunk_bytes = 1 << 14});
          results[static_cast<std::size_t>(rank)] = output.bytes();
          EXPECT_TRUE(output.guarded());
          const bool lossy = codec::Codec(spec, DType::f32).lossy() && world > 1;
          EXPECT_LE(relative_error(output.doubles(), wanted), lossy ? 1.5 * encoding + 1e-6 : 0);
        });
        for (const std::string& result : results) {
          EXPECT_TRUE(result == results[0]);
        }
      }
    }
  }
}

TEST(Broadcast, EveryRootEveryWorld) {
  for (const int world : kWorldSizes) {
    for (int root = 0; root < world; ++root) {
      for (const std::uint64_t count : {0ULL, 1ULL, 5000ULL, 70000ULL}) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          SCOPED_TRACE("world " + std::to_string(world) + " root " + std::to_string(root) + " count " +
                       std::to_string(count));
          Values wanted(dtype, gaussian(count, root));
          run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
            Communicator communicator(transport);
            Values values(dtype, gaussian(count, transport->rank()));
            communicator.broadcast(values.view(), root, {.codec = CodecSpec::parse("exact"), .chunk_bytes = 1 << 14});
            EXPECT_TRUE(values.bytes() == wanted.bytes());
            EXPECT_TRUE(values.guarded());
          });
        }
      }
    }
  }
}

TEST(Broadcast, ExactKeepsEveryBit) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    std::vector<std::uint16_t> halves(70000, transport->rank() == 1 ? 0x7C01 : 0);  // a signalling NaN
    communicator.broadcast(view(halves.data(), halves.size(), DType::f16), 1, {.codec = CodecSpec::parse("exact")});
    for (const std::uint16_t half : halves) {
      ASSERT_EQ(half, 0x7C01);
    }
  });
}

// Mutation tried: a broadcast takes the default codec of other calls.
TEST(Broadcast, IsExactUnlessACodecIsNamed) {
  CallOptions other_fields;
  other_fields.algorithm = Algorithm::two_shot;
  CallOptions assigned;
  assigned.codec = "int4";
  const std::vector<std::pair<CallOptions, bool>> cases{{{}, true},
                                                        {{.chunk_bytes = 1 << 14}, true},
                                                        {other_fields, true},
                                                        {{.codec = {}}, true},
                                                        {{.codec = "int8"}, false},
                                                        {assigned, false}};
  for (const auto& [options, exact] : cases) {
    SCOPED_TRACE(options.codec.to_string() + (options.codec.named() ? ", named" : ", not named"));
    std::vector<std::string> results(3);
    run_ranks(3, [&, options = options](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport);
      Values values(DType::f32, gaussian(50000, transport->rank()));
      communicator.broadcast(values.view(), 1, options);
      results[static_cast<std::size_t>(transport->rank())] = values.bytes();
    });
    EXPECT_TRUE(results[0] == results[1] && results[2] == results[1]);
    EXPECT_EQ(results[1] == Values(DType::f32, gaussian(50000, 1)).bytes(), exact);
  }
}

TEST(Broadcast, LossyIsTheSameOnTheRootToo) {
  std::vector<std::string> results(4);
  run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    Values values(DType::f32, gaussian(50000, transport->rank()));
    communicator.broadcast(values.view(), 2, {.codec = CodecSpec::parse("int8")});
    results[static_cast<std::size_t>(transport->rank())] = values.bytes();
  });
  for (const std::string& result : results) {
    EXPECT_TRUE(result == results[0]);
  }
}

TEST(Barrier, NobodyLeavesBeforeEveryoneHasCome) {
  std::atomic<int> arrived{0};
  run_ranks(5, [&](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      communicator.barrier();
      EXPECT_GE(arrived.load(), 5 * round);
      communicator.barrier();
    }
  });
}

}  // namespace
}  // namespace gradwire::test
