// Tests bench_all_reduce under mpirun: every field of its JSON, and the arguments that it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/bench/read_json.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

Outcome bench(const std::string& arguments, int ranks = 2) {
  return run_program(std::string(GRADWIRE_MPI_RUN) + " " + std::to_string(ranks) + " " + GRADWIRE_BENCH_ALL_REDUCE +
                     " " + arguments);
}

TEST(BenchAllReduce, WritesEveryFieldForEveryLibrary) {
  const ScratchFolder folder;
  const std::string file = folder.file("rows.json");
  const Outcome outcome = bench(
      "--codec int8,exact --baseline --min-bytes 4KiB --max-bytes 256KiB --factor 64 --iterations 3 --json " + file);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto report = read_json(file);
  EXPECT_EQ(report.at("schema"), "gradwire.bench_all_reduce.1");
  for (const char* key : {"cpu", "cores", "kernel", "compiler", "mpi", "revision", "date"}) {
    EXPECT_TRUE(report.at("machine").contains(key)) << key;
  }
  std::set<std::string> libraries;
  for (const auto& row : report.at("rows")) {
    libraries.insert(row.at("library").get<std::string>());
    for (const char* key : {"codec", "algorithm", "ranks", "bytes", "time_us_min", "time_us_p50", "bytes_sent_per_rank",
                            "rel_l2_error", "ranks_equal", "cpu_us"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_EQ(row.at("ranks"), 2);
    EXPECT_TRUE(row.at("ranks_equal").get<bool>());
    EXPECT_GT(row.at("time_us_p50").get<double>(), 0);
    EXPECT_LE(row.at("time_us_min").get<double>(), row.at("time_us_p50").get<double>());
    const double bytes = row.at("bytes").get<double>(), sent = row.at("bytes_sent_per_rank").get<double>();
    if (row.at("codec") == "int8") {
      EXPECT_GT(row.at("rel_l2_error").get<double>(), 1e-4) << "int8 cannot be exact on these inputs";
      EXPECT_LT(row.at("rel_l2_error").get<double>(), 0.05);
      EXPECT_LT(sent, 0.3 * bytes);
    } else {
      EXPECT_LT(row.at("rel_l2_error").get<double>(), 1e-6);
      EXPECT_NEAR(sent, bytes, 0.05 * bytes);
    }
  }
  EXPECT_EQ(report.at("rows").size(), libraries.size() * 2 + 2);  // two sizes; two codecs of gradwire
  EXPECT_TRUE(libraries.count("gradwire") == 1 && libraries.count("mpi") == 1);
#ifdef GRADWIRE_HAVE_GLOO
  EXPECT_EQ(libraries.count("gloo"), 1U);
#endif
}

TEST(BenchAllReduce, BaselineWithEmulatedLinkIsRefused) {
  const Outcome outcome = bench("--baseline --link 1Gbit/s --max-bytes 4KiB");
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("--baseline cannot be combined with --link"));
}

TEST(BenchAllReduce, SaysEmulatedWhereverItIs) {
  const ScratchFolder folder;
  const Outcome outcome =
      bench("--codec int8 --link 1Gbit/s,50us --min-bytes 64KiB --max-bytes 64KiB --iterations 2 --json " +
            folder.file("rows.json") + " --markdown " + folder.file("rows.md"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("link: emulated 1Gbit/s"));
  EXPECT_THAT(outcome.output, HasSubstr("p50 ms (emulated)"));
  EXPECT_THAT(read_text(folder.file("rows.md")), HasSubstr("p50 ms (emulated)"));
  const auto report = read_json(folder.file("rows.json"));
  EXPECT_TRUE(report.at("link").at("emulated").get<bool>());
  EXPECT_TRUE(report.at("rows").at(0).at("emulated").get<bool>());
  // 33 KB take 0.26 ms at 125 MB/s, and each of two hops takes 50 us: nothing may bypass the emulated link.
  EXPECT_GT(report.at("rows").at(0).at("time_us_min").get<double>(), 100);
}

// The test only checks that predictions exist and fit their parts; their quality needs a quiet machine.
TEST(BenchAllReduce, PredictsWhereTheLinkIsKnown) {
  const ScratchFolder folder;
  const Outcome outcome = bench(
      "--codec int8,exact --predict --ranks-per-core 1 --link 100Mbit/s,1ms --min-bytes 1MiB --max-bytes 1MiB "
      "--iterations 2 --json " +
      folder.file("rows.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("predicted by the cost model"));
  const auto report = read_json(folder.file("rows.json"));
  for (const auto& row : report.at("rows")) {
    const double predicted = row.at("predicted_us").get<double>(), measured = row.at("time_us_p50").get<double>();
    EXPECT_NEAR(row.at("prediction_error").get<double>(), predicted / measured - 1, 1e-9);
    EXPECT_GT(predicted, row.at("predicted_wire_us").get<double>());
    EXPECT_GE(row.at("predicted_latency_us").get<double>(), 2000);
  }
  // Half of 1 MiB of f32 travels in each of two hops, at 12.5 MB/s.
  EXPECT_NEAR(report.at("rows").at(1).at("predicted_wire_us").get<double>(), 1048576 / 12.5, 100);
  EXPECT_THAT(bench("--predict --min-bytes 4KiB --max-bytes 4KiB").output,
              HasSubstr("--predict needs a link of one known rate"));
  EXPECT_THAT(bench("--predict --link '1Gbit/s until 1s, 1MB/s' --max-bytes 1MiB").output, HasSubstr("one known rate"));
}

TEST(BenchAllReduce, BadArgumentsAreNamed) {
  EXPECT_THAT(bench("--codec int9").output, HasSubstr("int9"));
  EXPECT_THAT(bench("--algorithm ring").output, HasSubstr("ring"));
  EXPECT_THAT(bench("--min-bytes 12parsecs").output, HasSubstr("12parsecs"));
  EXPECT_THAT(bench("--link fast").output, HasSubstr("fast"));
  EXPECT_NE(bench("--codec int9").status, 0);
  EXPECT_EQ(bench("--help", 1).status, 0);
}

}  // namespace
}  // namespace gradwire::test
