// Compares the table's bytes with those counted where they leave a rank, for every function and every algorithm.
// Mutations tried: the denominator is that of the collective made in place of the job's; a one_shot counts its
// uncompressed bytes; a dry run assumes only two hops.
#include <gtest/gtest.h>

#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "drop_in/host_reducer.hpp"
#include "gradwire/policy.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::drop_in {
namespace {

constexpr int kCalls = 3;

struct Case {
  Function function = Function::mpi_allreduce;
  std::string algorithm = "auto";
  std::string codec = "int8";
  DType dtype = DType::f32;
  int ranks = 2;
  int ranks_per_node = 0;  // 0: all on one node
  std::uint64_t count = 20000;

  [[nodiscard]] std::string text() const {
    return std::string(name_of(function)) + " by " + algorithm + ", " + codec + ", " + std::string(to_string(dtype)) +
           ", " + std::to_string(ranks) + " ranks, " + std::to_string(count);
  }
};

Configuration configuration_for(const Case& one, const std::string& codec, bool dry_run) {
  Configuration configuration;
  configuration.dry_run = dry_run;
  configuration.planner = plan::CallPlanner(Policy::parse("version = 1\nfloor = \"1KiB\"\n[defaults]\ncodec = \"" +
                                                          codec + "\"\nalgorithm = \"" + one.algorithm +
                                                          "\"\nerror_feedback = \"off\"\n"));  // the step is not known
  return configuration;
}

// Returns segments that differ, as those of MPI_Reduce_scatter may.
std::vector<std::uint64_t> segments_of(const Case& one) {
  std::vector<std::uint64_t> counts(static_cast<std::size_t>(one.ranks),
                                    one.count / static_cast<std::uint64_t>(one.ranks));
  counts.back() += one.count - std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (one.function == Function::mpi_reduce_scatter) {
    counts.front() -= 100;
    counts.back() += 100;
  }
  return counts;
}

void make_call(const Case& one, HostReducer& reducer, int rank) {
  const Call call{.function = one.function,
                  .dtype = one.dtype,
                  .reduction = Reduction::sum,
                  .count = one.count,
                  .world_size = one.ranks};
  const HostReducer::Route route = reducer.route(call, "sum", {});
  const std::uint64_t bytes = one.count * element_bytes(one.dtype);
  if (!route.decision.compress || reducer.dry_run()) {
    reducer.count_passed(route, bytes, 0);
    return;
  }
  std::vector<std::byte> in(bytes);  // zeros are as good as other values here
  std::vector<std::byte> out(bytes);
  if (is_reduce_scatter(one.function)) {
    const std::vector<std::uint64_t> counts = segments_of(one);
    reducer.reduce_scatter(route, {in.data(), one.count, one.dtype},
                           {out.data(), counts[static_cast<std::size_t>(rank)], one.dtype}, counts);
  } else {  // also for MPI_Reduce
    reducer.all_reduce(route, {in.data(), one.count, one.dtype}, {out.data(), one.count, one.dtype});
  }
}

struct Figures {
  CallTotals told;            // in the tables of all ranks
  std::uint64_t counted = 0;  // at their transports
};

Figures figures_of(const Case& one, const std::string& codec, bool dry_run = false) {
  std::vector<std::uint32_t> nodes;
  for (int rank = 0; rank < one.ranks; ++rank) {
    nodes.push_back(one.ranks_per_node == 0 ? 0 : static_cast<std::uint32_t>(rank / one.ranks_per_node));
  }
  const Configuration configuration = configuration_for(one, codec, dry_run);
  Figures figures;
  std::mutex mutex;
  test::run_ranks(make_inproc_world(one.ranks, nodes), [&](const std::shared_ptr<Transport>& transport) {
    Ledger first;  // of the reducer that connects the ranks
    Ledger ledger;
    AgreedSettings agreement;
    agreement.mode = dry_run ? Mode::observing : Mode::compressing;
    agreement.dry_run = dry_run;
    std::uint64_t before = 0;
    HostReducer reducer(configuration, ledger, agreement, [&] { return transport; });
    make_call(one, reducer, transport->rank());
    before = transport->counters().bytes_sent;
    first.merge(ledger.to_text());
    for (int call = 0; call < kCalls; ++call) {
      make_call(one, reducer, transport->rank());
    }
    CallTotals all;
    for (const auto& [what, totals] : ledger.classes()) {
      all.add(totals);
    }
    CallTotals earlier;
    for (const auto& [what, totals] : first.classes()) {
      earlier.add(totals);
    }
    const std::lock_guard lock(mutex);
    figures.counted += transport->counters().bytes_sent - before;
    figures.told.calls += all.calls - earlier.calls;
    figures.told.compressed_calls += all.compressed_calls - earlier.compressed_calls;
    figures.told.bytes_dense += all.bytes_dense - earlier.bytes_dense;
    figures.told.bytes_sent += all.bytes_sent - earlier.bytes_sent;
  });
  return figures;
}

// Returns the bytes of all ranks together by the textbook: twice around a ring for an all-reduce, once for a reduce and
// a reduce-scatter.
double perfect_bytes(const Case& one) {
  const auto once =
      static_cast<double>(kCalls * (static_cast<std::uint64_t>(one.ranks) - 1) * one.count * element_bytes(one.dtype));
  return one.function == Function::mpi_reduce || is_reduce_scatter(one.function) ? once : 2 * once;
}

void check(const Case& one) {
  SCOPED_TRACE(one.text());
  const double perfect = perfect_bytes(one);
  const Figures sent = figures_of(one, one.codec);
  ASSERT_EQ(sent.told.compressed_calls, static_cast<std::uint64_t>(kCalls * one.ranks));
  EXPECT_EQ(sent.told.bytes_sent, sent.counted);
  EXPECT_NEAR(static_cast<double>(sent.told.bytes_dense), perfect, 1e-4 * perfect);
  const Figures passed = figures_of(one, "exact");
  EXPECT_EQ(passed.counted, 0U);
  EXPECT_EQ(passed.told.compressed_calls, 0U);
  EXPECT_EQ(passed.told.bytes_dense, sent.told.bytes_dense) << "the calls are the same";
  if (one.ranks_per_node == 0) {
    const Figures dry = figures_of(one, one.codec, true);
    EXPECT_EQ(dry.counted, 0U);
    EXPECT_EQ(dry.told.bytes_dense, sent.told.bytes_dense);
    const auto real = static_cast<double>(sent.told.bytes_sent);
    EXPECT_NEAR(static_cast<double>(dry.told.bytes_sent), real, 0.03 * real);
  }
}

constexpr Function kAllReduces[] = {Function::mpi_allreduce, Function::mpi_reduce, Function::c10d_all_reduce};
constexpr Function kReduceScatters[] = {Function::mpi_reduce_scatter, Function::mpi_reduce_scatter_block,
                                        Function::c10d_reduce_scatter};

TEST(Figures, OfEveryFunctionAndAlgorithm) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (const Function function : kAllReduces) {
      for (const char* algorithm : {"two_shot", "one_shot", "auto"}) {
        check({.function = function, .algorithm = algorithm, .ranks = ranks});
      }
    }
    for (const Function function : kReduceScatters) {
      check({.function = function, .ranks = ranks, .count = 24 * 840});
    }
  }
}

TEST(Figures, OfSmallMessagesWhereTheCostModelSendsToAll) {
  for (const int ranks : {2, 3, 4, 8}) {
    check({.ranks = ranks, .count = 2000});
    check({.function = Function::mpi_reduce, .ranks = ranks, .count = 2000});
  }
}

// Tests the statistics of each call, which sessions and metrics count.
TEST(Figures, OfACommunicator) {
  constexpr std::uint64_t kCount = 1 << 14;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (const Algorithm algorithm : {Algorithm::two_shot, Algorithm::one_shot}) {
      std::mutex mutex;
      std::uint64_t dense = 0;
      test::run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
        Communicator communicator(transport);
        std::vector<float> values(kCount, 1.0F);
        CallOptions options;
        options.codec = CodecSpec::parse("int8");
        options.algorithm = algorithm;
        const Statistics statistics = communicator.all_reduce(view(values.data(), kCount), options);
        const std::lock_guard lock(mutex);
        dense += statistics.bytes_uncompressed;
      });
      const double perfect = 2.0 * (ranks - 1) * kCount * sizeof(float);
      EXPECT_NEAR(static_cast<double>(dense), perfect, 1e-4 * perfect) << ranks << " ranks, " << to_string(algorithm);
    }
  }
}

TEST(Figures, OfNodesOfSeveralRanks) {
  for (const auto& [ranks, each] : {std::pair{4, 2}, std::pair{6, 3}, std::pair{8, 2}, std::pair{8, 4}}) {
    check({.algorithm = "hierarchical", .ranks = ranks, .ranks_per_node = each, .count = 1U << 17});
    check({.function = Function::mpi_reduce,
           .algorithm = "hierarchical",
           .ranks = ranks,
           .ranks_per_node = each,
           .count = 1U << 17});
  }
}

TEST(Figures, OfOtherCodecsAndTypes) {
  for (const char* codec : {"bf16", "fp8", "int4", "topk(1%)+int8"}) {
    check({.codec = codec, .ranks = 4, .count = 1U << 16});
    check({.function = Function::mpi_reduce_scatter_block, .codec = codec, .ranks = 4, .count = 1U << 16});
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {
    check({.dtype = dtype, .ranks = 3, .count = 1U << 16});
    check({.function = Function::mpi_reduce, .codec = "int4", .dtype = dtype, .ranks = 4, .count = 1U << 16});
  }
}

}  // namespace
}  // namespace gradwire::drop_in
