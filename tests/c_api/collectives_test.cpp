// Tests reduce-scatter and all-gather through the C API, and the text of a communicator's tiers.
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "c_api_support.hpp"
#include "c_side.h"
#include "gradwire/mpi.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

class CCollectives : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(gradwire_communicator_create_mpi(MPI_COMM_WORLD, nullptr, &communicator));
    // Segments have different lengths; the first one is empty if there are others.
    for (int rank = 0; rank < world_size(); ++rank) {
      counts.push_back(rank == 0 && world_size() > 1 ? 0 : 9000 + 7 * static_cast<std::uint64_t>(rank));
    }
    all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    first = std::accumulate(counts.begin(), counts.begin() + world_rank(), std::uint64_t{0});
    own = counts[static_cast<std::size_t>(world_rank())];
  }
  void TearDown() override { gradwire_communicator_destroy(communicator); }

  [[nodiscard]] gradwire_status reduce_scatter(const void* input, void* output,
                                               const gradwire_call_options* options = nullptr,
                                               gradwire_statistics* statistics = nullptr) const {
    return gradwire_reduce_scatter(communicator, input, output, counts.data(), GRADWIRE_F32, options, statistics);
  }
  [[nodiscard]] gradwire_status all_gather(const void* input, void* output,
                                           const gradwire_call_options* options = nullptr) const {
    return gradwire_all_gather(communicator, input, output, counts.data(), GRADWIRE_F32, options, nullptr);
  }

  gradwire_communicator* communicator = nullptr;
  std::vector<std::uint64_t> counts;
  std::uint64_t all = 0;
  std::uint64_t first = 0;  // start of this rank's segment
  std::uint64_t own = 0;
};

TEST_F(CCollectives, ServeAProgramInC) { EXPECT_EQ(c_side_segments(MPI_COMM_WORLD), 0) << gradwire_last_error(); }

TEST_F(CCollectives, ReduceScatterLeavesEachRankItsSegment) {
  const int ranks = world_size();
  const float ranks_sum = static_cast<float>(ranks * (ranks + 1)) / 2;
  std::vector<float> input(all);
  for (std::uint64_t i = 0; i < all; ++i) {
    input[i] = static_cast<float>(i % 89) * static_cast<float>(world_rank() + 1);
  }
  auto options = sized<gradwire_call_options>();
  options.codec = "exact";
  std::vector<float> output(own + 1, -1.0F);
  ASSERT_OK(reduce_scatter(input.data(), output.data(), &options));
  for (std::uint64_t i = 0; i < own; ++i) {
    ASSERT_EQ(output[i], static_cast<float>((first + i) % 89) * ranks_sum) << i;
  }
  EXPECT_EQ(output[own], -1.0F) << "beyond the segment";

  // The result goes into the rank's own segment of the input, as a mean.
  options.reduction = GRADWIRE_MEAN;
  std::vector<float> in_place = input;
  ASSERT_OK(reduce_scatter(in_place.data(), in_place.data() + first, &options));
  for (std::uint64_t i = 0; i < own; ++i) {
    ASSERT_FLOAT_EQ(in_place[first + i], output[i] / static_cast<float>(ranks)) << i;
  }

  auto statistics = sized<gradwire_statistics>();
  std::vector<float> lossy(own);
  ASSERT_OK(reduce_scatter(input.data(), lossy.data(), nullptr, &statistics));
  EXPECT_EQ(statistics.calls, 1U);
  EXPECT_EQ(statistics.bytes_in, 4 * all);
  if (own < all) {
    EXPECT_GT(statistics.bytes_uncompressed, 3 * statistics.bytes_sent) << "int8 is the default";
  }
  for (std::uint64_t i = 0; i < own; ++i) {
    ASSERT_NEAR(lossy[i], output[i], 88.0F * ranks_sum / 127) << i;
  }
}

TEST_F(CCollectives, FeedbackOfAReduceScatterHasTheCountOfItsInput) {
  const std::vector<float> input(all, 0.3F);
  std::vector<float> output(own);
  auto options = sized<gradwire_call_options>();
  options.codec = "int4";
  ASSERT_OK(gradwire_feedback_create(all, &options.feedback));
  EXPECT_OK(reduce_scatter(input.data(), output.data(), &options));
  MPI_Barrier(MPI_COMM_WORLD);  // no rank fails before all have the result
  gradwire_feedback_destroy(options.feedback);
  ASSERT_OK(gradwire_feedback_create(all + 1, &options.feedback));
  expect_invalid(reduce_scatter(input.data(), output.data(), &options), "the feedback buffer has ");
  gradwire_feedback_destroy(options.feedback);
}

TEST_F(CCollectives, AllGatherBringsAllSegmentsInTheOrderOfRanks) {
  const auto value = [](int rank, std::uint64_t i) { return 1000.0F * static_cast<float>(rank + 1) + i % 501; };
  std::vector<float> expected;
  for (int rank = 0; rank < world_size(); ++rank) {
    for (std::uint64_t i = 0; i < counts[static_cast<std::size_t>(rank)]; ++i) {
      expected.push_back(value(rank, i));
    }
  }
  const std::vector<float> mine(expected.begin() + static_cast<std::ptrdiff_t>(first),
                                expected.begin() + static_cast<std::ptrdiff_t>(first + own));
  auto options = sized<gradwire_call_options>();
  options.codec = "exact";
  options.reduction = GRADWIRE_MEAN;  // has no effect here
  std::vector<float> output(all);
  ASSERT_OK(all_gather(mine.data(), output.data(), &options));
  EXPECT_EQ(output, expected);

  // The input is the rank's own segment of the output.
  std::vector<float> in_place(all);
  std::copy(mine.begin(), mine.end(), in_place.begin() + static_cast<std::ptrdiff_t>(first));
  ASSERT_OK(all_gather(in_place.data() + first, in_place.data(), &options));
  EXPECT_EQ(in_place, expected);

  // The default is lossy, but equal on all ranks, including the source of the values.
  ASSERT_OK(all_gather(mine.data(), output.data()));
  std::vector<float> of_last = output;
  MPI_Bcast(of_last.data(), static_cast<int>(all), MPI_FLOAT, world_size() - 1, MPI_COMM_WORLD);
  EXPECT_EQ(output, of_last);
  EXPECT_EQ(output == expected, world_size() == 1) << "int8 is the default";
  for (std::uint64_t i = 0; i < all; ++i) {
    ASSERT_NEAR(output[i], expected[i], 5000.0F / 127) << i;
  }
}

// A mistake that is visible before a call begins is refused; the communicator can still be used.
TEST_F(CCollectives, RefuseWhatIsWrongByItself) {
  const std::vector<float> input(all, 1.0F);
  std::vector<float> output(all);
  using Call = decltype(&gradwire_reduce_scatter);
  for (const auto& [name, call] : {std::pair<std::string, Call>("gradwire_reduce_scatter: ", gradwire_reduce_scatter),
                                   std::pair<std::string, Call>("gradwire_all_gather: ", gradwire_all_gather)}) {
    const auto with = [&, function = call](gradwire_communicator* on, const std::vector<std::uint64_t>& segments,
                                           int dtype, const gradwire_call_options* options,
                                           gradwire_statistics* statistics = nullptr) {
      return function(on, input.data(), output.data(), segments.empty() ? nullptr : segments.data(),
                      static_cast<gradwire_dtype>(dtype), options, statistics);
    };
    expect_invalid(with(nullptr, counts, GRADWIRE_F32, nullptr), name + "communicator is NULL; give one that");
    expect_invalid(with(communicator, {}, GRADWIRE_F32, nullptr), name + "counts is NULL; give one number");
    expect_invalid(with(communicator, counts, 9, nullptr), name + "dtype is 9; give one of gradwire_dtype");
    std::vector<std::uint64_t> long_one = counts;
    long_one.back() = std::numeric_limits<std::uint64_t>::max();
    expect_invalid(with(communicator, long_one, GRADWIRE_F32, nullptr),
                   name + "counts[" + std::to_string(world_size() - 1) + "] is 18446744073709551615");
    auto options = sized<gradwire_call_options>();
    options.algorithm = static_cast<gradwire_algorithm>(11);
    expect_invalid(with(communicator, counts, GRADWIRE_F32, &options), name + "algorithm is 11");
    options = sized<gradwire_call_options>();
    options.reduction = static_cast<gradwire_reduction>(12);
    expect_invalid(with(communicator, counts, GRADWIRE_F32, &options), name + "reduction is 12");
    options = sized<gradwire_call_options>();
    options.codec = "int9";
    expect_invalid(with(communicator, counts, GRADWIRE_F32, &options), "int9");
    options.struct_size = 1;
    expect_invalid(with(communicator, counts, GRADWIRE_F32, &options), "gradwire_call_options: struct_size is 1");
    gradwire_statistics statistics{};
    expect_invalid(with(communicator, counts, GRADWIRE_F32, nullptr, &statistics),
                   "gradwire_statistics: struct_size is 0");
  }
  EXPECT_OK(reduce_scatter(input.data(), output.data()));
}

// A mistake in a call ends the communicator on every rank, so that no rank waits.
TEST_F(CCollectives, EndWithAnErrorThatAllRanksSee) {
  std::vector<float> values(all);
  const bool last = world_rank() == world_size() - 1;  // its segment is not empty
  const std::string text = "reduce_scatter input: null data with count " + std::to_string(all);
  if (last) {
    expect_invalid(reduce_scatter(nullptr, values.data()), text);
  } else {
    gradwire_status status = reduce_scatter(values.data(), values.data() + first);
    if (status == GRADWIRE_OK) {  // an empty segment waits for no rank
      status = gradwire_barrier(communicator);
    }
    expect_error(status, GRADWIRE_ABORTED, text);
  }
}

TEST_F(CCollectives, RefuseMemoryThatOverlaps) {
  std::vector<float> values(all + 1);
  const gradwire_status status = all_gather(values.data() + first + 1, values.data());
  if (own > 0) {
    expect_invalid(status, "input and output overlap; give separate memory");
  } else {
    EXPECT_EQ(status, GRADWIRE_ABORTED) << "the segments of another rank have elements";
  }
}

TEST_F(CCollectives, TiersAreAText) {
  std::uint64_t length = 0;
  ASSERT_OK(gradwire_communicator_tiers(communicator, nullptr, 0, &length));
  std::string text(length, '?');
  ASSERT_OK(gradwire_communicator_tiers(communicator, text.data(), length + 1, nullptr));
  EXPECT_THAT(text, HasSubstr("1 node of " + std::to_string(world_size()) + " rank"));
  expect_invalid(gradwire_communicator_tiers(nullptr, text.data(), 1, nullptr),
                 "gradwire_communicator_tiers: communicator is NULL; give one that gradwire_communicator_create_mpi()");
}

}  // namespace
}  // namespace gradwire::test
