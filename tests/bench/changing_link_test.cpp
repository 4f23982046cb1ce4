// Tests bench_changing_link --quick: fields and refusals, and the judgements that need no run. Its results are not
// asserted here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "bench/changing_link/comparison.hpp"
#include "gradwire/emulation.hpp"
#include "tests/bench/read_json.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using changing_link::Step;
using changing_link::Trace;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kProgram = GRADWIRE_BENCH_CHANGING_LINK;

TEST(BenchChangingLink, WritesARowForEachPlayer) {
  const ScratchFolder folder;
  const Outcome outcome = run_program(kProgram + " --quick --json " + folder.file("out.json") + " --svg " +
                                      folder.file("out.svg") + " --markdown " + folder.file("out.md"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("link: emulated 50Mbit/s until 200ms, 1Gbit/s"));
  const auto report = read_json(folder.file("out.json"));
  EXPECT_EQ(report.at("schema"), "gradwire.bench_changing_link.1");
  std::set<std::string> players;
  for (const auto& row : report.at("rows")) {
    players.insert(row.at("choice").get<std::string>());
    EXPECT_GT(row.at("total_seconds").get<double>(), 0);
    EXPECT_FALSE(row.at("uses").empty()) << row.at("choice");
    EXPECT_EQ(row.at("uses").at(0).at("step"), 0);
    EXPECT_FALSE(row.at("step_ms").empty());
    std::size_t steps = 0;
    for (const auto& phase : row.at("phases")) {
      steps += phase.at("steps").get<std::size_t>();
    }
    EXPECT_EQ(steps, report.at("steps").get<std::size_t>());
  }
  EXPECT_EQ(players, (std::set<std::string>{"dense", "bf16", "int8", "int4", "clairvoyant", "auto", "greedy",
                                            "auto again", "clairvoyant again"}));
  EXPECT_EQ(report.at("planned").size(), 2U);
  EXPECT_THAT(read_text(folder.file("out.svg")), HasSubstr("Codec in use"));
  EXPECT_THAT(read_text(folder.file("out.md")), HasSubstr("| clairvoyant |"));
}

TEST(BenchChangingLink, BadArgumentsAreNamed) {
  EXPECT_THAT(run_program(kProgram + " --link '1Gbit/s until 3s'").output, HasSubstr("phase 1 (1Gbit/s) is the last"));
  EXPECT_THAT(run_program(kProgram + " --allow int9").output, HasSubstr("int9"));
  EXPECT_THAT(run_program(kProgram + " --ranks 1").output, HasSubstr("--ranks"));
  EXPECT_EQ(run_program(kProgram + " --compute soon").status, 2);
  EXPECT_THAT(run_program(kProgram + " --players clairvoyent").output, HasSubstr("\"clairvoyent\" is none of dense"));
  EXPECT_THAT(run_program(kProgram + " --allow int4,int8").output, HasSubstr("int8"));
}

Trace trace_of(const std::vector<Step>& steps) { return {.name = "", .steps = steps, .uses = {{}}}; }

TEST(Comparison, StepsBelongToThePhaseInWhichTheyBegin) {
  const LinkSchedule link = LinkSchedule::parse("1MB/s until 1s, 2MB/s until 2s, 3MB/s");
  const auto times = changing_link::phase_times(link, {{0, 0.4}, {0.4, 0.9}, {1.3, 0.1}, {1.4, 0.3}, {1.7, 0.2}});
  ASSERT_EQ(times.size(), 3U);
  EXPECT_EQ(times[0].steps, 2U);
  EXPECT_DOUBLE_EQ(times[0].mean_seconds, 0.65);
  EXPECT_DOUBLE_EQ(times[1].median_seconds, 0.2);
  EXPECT_TRUE(std::isnan(times[2].mean_seconds));
}

TEST(Comparison, TheBestOfAPhaseNeedsEnoughSteps) {
  const LinkSchedule link = LinkSchedule::parse("1MB/s until 1s, 2MB/s until 2s, 3MB/s");
  std::vector<Step> slow, quick;
  for (int i = 0; i < 6; ++i) {
    slow.push_back({0.1 * i, 0.3});
    slow.push_back({1 + 0.1 * i, 0.1});
    quick.push_back({0.1 * i, 0.2});
  }
  quick.push_back({1, 0.01});  // a single step proves nothing
  EXPECT_THAT(changing_link::best_by_phase(link, {trace_of(slow), trace_of(quick)}), ElementsAre(1, 0, 0));
}

}  // namespace
}  // namespace gradwire::test
