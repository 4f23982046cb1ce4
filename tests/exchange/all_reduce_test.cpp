// Tests all-reduce: every registered algorithm with every registered codec, dtype, world and count. The test names no
// algorithm or codec.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "codec/registry.hpp"
#include "exchange/collectives.hpp"
#include "inputs.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using exchange::AlgorithmEntry;

#ifdef __SANITIZE_THREAD__  // a dtype has no threads of its own
constexpr DType kDTypes[] = {DType::f32, DType::f16};
#else
constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
#endif
#ifdef __SANITIZE_THREAD__
constexpr int kWorlds[] = {3};
constexpr std::uint64_t kCounts[] = {1, 4097, 20000};
#elif defined(GRADWIRE_SANITIZED)  // the same paths; this build is up to 15 times slower
constexpr int kWorlds[] = {1, 2, 3, 8};
constexpr std::uint64_t kCounts[] = {0, 1, 4097, 40000};
#else
constexpr int kWorlds[] = {1, 2, 3, 4, 7, 8};
constexpr std::uint64_t kCounts[] = {0, 1, 5, 4096, 4097, 40000};
#endif

struct Case {
  CodecSpec codec;
  Algorithm algorithm;
  DType dtype;
  Reduction reduction = Reduction::sum;
  bool weighted = false;
  bool in_place = false;
};

// Runs one all-reduce in every rank; returns each rank's result.
std::vector<Values> run_case(const Case& c, const std::vector<std::vector<double>>& inputs) {
  const int world = static_cast<int>(inputs.size());
  const std::uint64_t count = inputs[0].size();
  std::vector<Values> results(static_cast<std::size_t>(world), Values(c.dtype, count));
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    Communicator communicator(transport);
    Values input(c.dtype, inputs[rank]);
    const std::string before = input.bytes();
    CallOptions options{.codec = c.codec, .algorithm = c.algorithm, .reduction = c.reduction, .chunk_bytes = 1 << 14};
    options.weight = c.weighted ? std::optional(weight_of(transport->rank())) : std::nullopt;
    if (c.in_place) {
      communicator.all_reduce(input.view(), options);
      results[rank] = input;
    } else {
      communicator.all_reduce(input.view(), results[rank].view(), options);
      EXPECT_EQ(input.bytes(), before) << "the input was changed";
    }
    EXPECT_TRUE(results[rank].guarded());
  });
  return results;
}

std::vector<double> reference(const Case& c, const std::vector<std::vector<double>>& inputs) {
  std::vector<double> sum(inputs[0].size(), 0);
  double weights = 0;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    const double weight = c.weighted ? weight_of(static_cast<int>(rank)) : 1;
    weights += weight;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += weight * inputs[rank][i];
    }
  }
  if (c.reduction == Reduction::mean) {
    for (double& value : sum) {
      value /= weights;
    }
  }
  return sum;
}

double dtype_error(DType dtype) {
  switch (dtype) {
    case DType::f16: return 1e-3;
    case DType::bf16: return 1e-2;
    case DType::f64: return 1e-14;
    case DType::f32: break;
  }
  return 1e-6;
}

void expect_ranks_equal(const std::vector<Values>& results) {
  for (std::size_t rank = 1; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank].bytes() == results[0].bytes()) << "rank " << rank << " differs from rank 0";
  }
}

std::string name_of(const Case& c, int world, std::uint64_t count) {
  return c.codec.to_string() + " " + std::string(to_string(c.algorithm)) + " " + std::string(to_string(c.dtype)) +
         " world " + std::to_string(world) + " count " + std::to_string(count) +
         (c.reduction == Reduction::mean ? " mean" : " sum") + (c.weighted ? " weighted" : "") +
         (c.in_place ? " in place" : "");
}

std::vector<CodecSpec> all_codecs() {
  std::vector<CodecSpec> specs;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    specs.emplace_back(entry.id);
  }
  specs.emplace_back(codec::kPackedId);
  return specs;
}

// Returns the L2 norm to which errors are relative: that of the inputs, not of their sum, which may cancel.
double input_norm(const Case& c, const std::vector<std::vector<double>>& inputs) {
  double norm = 0;
  double weights = 0;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    const double weight = c.weighted ? weight_of(static_cast<int>(rank)) : 1;
    weights += weight;
    for (const double value : inputs[rank]) {
      norm += weight * weight * value * value;
    }
  }
  return std::sqrt(norm) / (c.reduction == Reduction::mean ? weights : 1);
}

// Returns the error for many values; a few might suit a codec by chance.
double usual_encoding_error(const CodecSpec& codec) {
  static std::map<std::string, double> errors;
  const auto [found, is_new] = errors.try_emplace(codec.to_string(), 0);
  if (is_new) {
    found->second = single_encoding_error(codec::Codec(codec, DType::f32), gaussian(codec::kTileElements, 99));
  }
  return found->second;
}

// Returns the same inputs for every case, since drawing them takes longer than reducing them.
const std::vector<double>& input_of(DType dtype, std::uint64_t count, int rank) {
  static std::map<std::tuple<DType, std::uint64_t, int>, std::vector<double>> inputs;
  const auto [found, is_new] = inputs.try_emplace({dtype, count, rank});
  if (is_new) {
    found->second = Values(dtype, gaussian(count, rank)).doubles();
  }
  return found->second;
}

// Expects an error of at most three encodings (two hops, and slack for short blocks) against the exact result.
void check_case(const Case& c, int world, std::uint64_t count) {
  SCOPED_TRACE(name_of(c, world, count));
  std::vector<std::vector<double>> inputs;
  const double encoding = usual_encoding_error(c.codec);
  const codec::Codec codec(c.codec, c.dtype);
  for (int rank = 0; rank < world; ++rank) {
    inputs.push_back(input_of(c.dtype, count, rank));
  }
  const auto results = run_case(c, inputs);
  expect_ranks_equal(results);
  const std::vector<double> wanted = reference(c, inputs);
  const bool lossy = codec.lossy() && c.algorithm != Algorithm::dense && world > 1;
  const double allowed =
      ((lossy ? (count < 64 ? 6 : 3) * encoding + 1e-6 : 0) + 4 * dtype_error(c.dtype)) * input_norm(c, inputs);
  const std::vector<double> got = results[0].doubles();
  double error = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
  }
  EXPECT_LE(std::sqrt(error), allowed);
}

TEST(AllReduce, EveryCombinationIsCloseAndEqualOnAllRanks) {
  for (const AlgorithmEntry& algorithm : exchange::algorithms()) {
    for (const CodecSpec& codec : all_codecs()) {
      for (const int world : kWorlds) {
        for (const std::uint64_t count : kCounts) {
          check_case(
              {.codec = codec, .algorithm = algorithm.algorithm, .dtype = DType::f32, .in_place = count % 2 == 1},
              world, count);
        }
      }
      for (const DType dtype : kDTypes) {
        for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
          for (const bool weighted : {false, true}) {
            check_case({.codec = codec,
                        .algorithm = algorithm.algorithm,
                        .dtype = dtype,
                        .reduction = reduction,
                        .weighted = weighted,
                        .in_place = weighted},
                       3, 20000);
          }
        }
      }
    }
  }
}

// Small integers add up exactly in any order: any lost, doubled or misplaced element shows.
TEST(AllReduce, ExactCodecsAreExact) {
  for (const AlgorithmEntry& algorithm : exchange::algorithms()) {
    for (const CodecSpec& codec : all_codecs()) {
      if (codec::Codec(codec, DType::f32).lossy()) {
        continue;
      }
      for (const DType dtype : kDTypes) {
        for (const int world : kWorlds) {
          for (const std::uint64_t count : {1ULL, 4095ULL, 33000ULL}) {
            const Case c{.codec = codec, .algorithm = algorithm.algorithm, .dtype = dtype};
            SCOPED_TRACE(name_of(c, world, count));
            std::vector<std::vector<double>> inputs;
            for (int rank = 0; rank < world; ++rank) {
              inputs.push_back(integers(count, rank));
            }
            const auto results = run_case(c, inputs);
            expect_ranks_equal(results);
            EXPECT_EQ(results[0].doubles(), reference(c, inputs));
          }
        }
      }
    }
  }
}

// A requested lossy codec must show in the result: a silent fall-back to exact is a bug.
TEST(AllReduce, LossyCodecsDifferFromExact) {
  for (const AlgorithmEntry& algorithm : exchange::algorithms()) {
    for (const CodecSpec& codec : all_codecs()) {
      const bool lossy = codec::Codec(codec, DType::f32).lossy() && algorithm.algorithm != Algorithm::dense;
      const Case c{.codec = codec, .algorithm = algorithm.algorithm, .dtype = DType::f32};
      SCOPED_TRACE(name_of(c, 2, 30000));
      const std::vector<std::vector<double>> inputs{gaussian(30000, 0), gaussian(30000, 1)};
      const auto results = run_case(c, inputs);
      EXPECT_EQ(relative_error(results[0].doubles(), reference(c, inputs)) > 1e-6, lossy);
    }
  }
}

TEST(AllReduce, BytesSentAreThoseOfTheFrames) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    const std::uint64_t count = 64 * codec::kTileElements;
    Values values(DType::f32, gaussian(count, transport->rank()));
    const TransportCounters before = transport->counters();
    const Statistics statistics =
        communicator.all_reduce(values.view(), {.codec = CodecSpec::parse("int8"), .algorithm = Algorithm::two_shot});
    const std::uint64_t sent = transport->counters().bytes_sent - before.bytes_sent;
    EXPECT_EQ(statistics.bytes_sent, sent);
    EXPECT_EQ(statistics.bytes_uncompressed, count * 4);
    const codec::Codec codec(CodecSpec::parse("int8"), DType::f32);
    EXPECT_EQ(sent, codec.payload_bytes(count) + statistics.frames_sent * 32);
    EXPECT_GT(statistics.ratio(), 3.9);
  });
}

// Weights may be sample counts of thousands: w x is beyond f16, and the mean is not.
TEST(AllReduce, LargeWeightsDoNotOverflowTheTensorsDtype) {
  for (const AlgorithmEntry& algorithm : exchange::algorithms()) {
    for (const CodecSpec& codec : all_codecs()) {
      SCOPED_TRACE(codec.to_string() + " " + std::string(algorithm.name));
      const double encoding = usual_encoding_error(codec);
      run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
        Communicator communicator(transport);
        Values values(DType::f16, std::vector<double>(10000, 100.0 * (1 + transport->rank())));
        communicator.all_reduce(values.view(), {.codec = codec,
                                                .algorithm = algorithm.algorithm,
                                                .reduction = Reduction::mean,
                                                .weight = 4096.0 * (1 + transport->rank())});
        constexpr double kMean = 100.0 * (1 + 4 + 9) / 6;
        EXPECT_NEAR(values.doubles()[9999], kMean, 3 + 3 * kMean * encoding);
      });
    }
  }
}

TEST(AllReduce, NonFiniteValuesReachEveryRank) {
  for (const AlgorithmEntry& algorithm : exchange::algorithms()) {
    for (const CodecSpec& codec : all_codecs()) {
      SCOPED_TRACE(codec.to_string());
      run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
        Communicator communicator(transport);
        std::vector<double> input = gaussian(20000, transport->rank());
        if (transport->rank() == 1) {
          input[7777] = std::nan("");
        }
        Values values(DType::f32, input);
        const Statistics statistics = communicator.all_reduce(
            values.view(), {.codec = codec, .algorithm = algorithm.algorithm, .chunk_bytes = 1 << 14});
        const std::vector<double> result = values.doubles();
        EXPECT_TRUE(std::isnan(result[7777]));
        EXPECT_TRUE(std::isfinite(result[0]) && std::isfinite(result[19999]));
        if (codec::Codec(codec, DType::f32).lossy() && algorithm.algorithm != Algorithm::dense) {
          EXPECT_GT(statistics.nonfinite_frames, 0U);
        }
      });
    }
  }
}

}  // namespace
}  // namespace gradwire::test
