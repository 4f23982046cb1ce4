// Tests that a drop-in that was not asked to compress, or has not chosen to yet, changes not one bit of the results of
// real programs.
#include <map>
#include <regex>

#include "tests/mpi_preload/preload.hpp"

namespace gradwire::test {
namespace {

constexpr const char* kPrograms[] = {"solver", "gram", "clusters", "osu", "each_call"};
// All cases run in one job, since starting it takes as long as running it.
constexpr const char* kAll = "solver,gram,clusters,osu,each_call";

using Hashes = std::map<std::string, std::string>;

// Returns for each program the hash of all ranks' results.
Hashes hashes(const Outcome& outcome) {
  Hashes found;
  const std::regex line(R"((\w+):[^\n]* hash ([0-9]+))");
  for (std::sregex_iterator match(outcome.output.begin(), outcome.output.end(), line), end; match != end; ++match) {
    found[(*match)[1]] = (*match)[2];
  }
  return found;
}

void expect_all_ok(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const std::string program : kPrograms) {
    EXPECT_NE(outcome.output.find(program + " ok"), std::string::npos) << outcome.output;
  }
}

// Returns whether calls of this many floats took part in a comparison of both ways.
bool were_measured(const json& report, int count) {
  const json& rows = report.at("classes");
  return std::any_of(rows.begin(), rows.end(),
                     [&](const json& row) { return row.at("count") == count && row.at("reason") == "being measured"; });
}

// Returns whether a comparison ended and passing won it.
bool some_class_is_no_faster(const json& report) {
  const json& rows = report.at("classes");
  return std::any_of(rows.begin(), rows.end(), [](const json& row) {
    const json& measured = row.at("measured");  // null: another count of its class was timed
    return row.at("reason") == "no faster on this link" && !measured.is_null() && measured.at("compressed_seconds") > 0;
  });
}

class Harmless : public Preload {
 protected:
  // Returns the hashes without the drop-in. A library sums in the same order in every run and at every thread level.
  [[nodiscard]] const Hashes& of_the_library() const {
    static std::map<std::string, Hashes> known;
    if (!known.contains(GetParam().name)) {
      const Outcome outcome = plain(3, kAll);
      expect_all_ok(outcome);
      known[GetParam().name] = hashes(outcome);
      EXPECT_EQ(known[GetParam().name].size(), std::size(kPrograms)) << outcome.output;
    }
    return known[GetParam().name];
  }
};

// Mutation tried, fails for each of the three: the setting is ignored and int8 is used.
TEST_P(Harmless, WhoDidNotAskForACodecKeepsEveryBit) {
  const Outcome observed = with(3, observing(), kAll);
  expect_all_ok(observed);
  EXPECT_EQ(hashes(observed), of_the_library());
  EXPECT_EQ(compressed_calls(report()), 0U);
  EXPECT_TRUE(has_reason(report(), "observed: no codec was named"));

  // Only at this thread level could calls that return a request be compressed.
  const Outcome counted = with(3, preload() + " GRADWIRE_DRY_RUN=1", std::string(kAll) + " multiple");
  expect_all_ok(counted);
  EXPECT_EQ(hashes(counted), of_the_library());
  EXPECT_GT(compressed_calls(report()), 0U) << "calls are counted as if they had been sent compressed";
  EXPECT_EQ(report().at("totals").at("lossy_calls"), 0U);

  const Outcome disabled = with(3, preload() + " GRADWIRE_DISABLE=1", std::string(kAll) + " multiple");
  expect_all_ok(disabled);
  EXPECT_EQ(hashes(disabled), of_the_library());
}

// No gain is large enough for this policy, so every class is compared and none is chosen. Mutation tried: the job gets
// the compressed sum of a trial.
TEST_P(Harmless, TrialsKeepEveryBit) {
  const std::string nothing_gains = policy("gain", "[defaults]\ncodec = \"auto\"\n[auto]\ngain = 0.999999\n");
  const Outcome outcome = with(3, observing() + " " + nothing_gains, std::string(kAll) + " multiple");
  expect_all_ok(outcome);
  EXPECT_EQ(hashes(outcome), of_the_library());
  EXPECT_EQ(compressed_calls(report()), 0U);
  for (const int count : {20000, 25600, 19200}) {  // counts of the solver, the Gram matrices and the clusters
    EXPECT_TRUE(were_measured(report(), count)) << report().dump(1);
  }
  EXPECT_TRUE(some_class_is_no_faster(report())) << report().dump(1);
}

// It depends on the machine which way is faster. If compression is, results change only after a line has said so.
TEST_P(Harmless, AutoKeepsEveryBitUntilItChooses) {
  const Outcome outcome = with(3, measuring(), kAll);
  const bool chosen = compressed_calls(report()) > 0;
  EXPECT_EQ(contains(outcome, "sums are rounded from here on"), chosen) << outcome.output;
  EXPECT_TRUE(were_measured(report(), 20000)) << report().dump(1);
  if (!chosen) {
    expect_all_ok(outcome);
    EXPECT_EQ(hashes(outcome), of_the_library());
  }
}

// The programs would notice: with a named codec each has another hash, and most fail.
TEST_P(Harmless, EachProgramSeesWhatIsRounded) {
  const Outcome outcome = with(3, preload(), kAll);
  EXPECT_GT(compressed_calls(report()), 0U);
  const Hashes rounded = hashes(outcome);
  for (const std::string program : kPrograms) {
    ASSERT_TRUE(rounded.contains(program)) << outcome.output;
    EXPECT_NE(rounded.at(program), of_the_library().at(program)) << program;
  }
}

// Calls are counted between MPI_Init and MPI_Finalize. A compressing job sends, which shows that the counter works;
// neither job makes a communicator.
TEST_P(Harmless, WhoObservesSendsNothing) {
  const std::string counted = " LD_PRELOAD='" + GetParam().own_calls + ":" + GetParam().drop_in + "'";
  const auto own_calls = [&](const std::string& settings) {
    const Outcome outcome = with(3, settings + counted, "own_calls multiple");
    expect_ok(outcome, "own_calls");
    EXPECT_EQ(number_in(outcome, "made ([0-9]+)"), 0) << outcome.output;
    return number_in(outcome, "own calls: sent ([0-9]+)");
  };
  EXPECT_EQ(own_calls(observing()), 0);
  EXPECT_EQ(own_calls(observing() + " GRADWIRE_DISABLE=1 GRADWIRE_CODEC=int8"), 0);
  EXPECT_EQ(own_calls(preload() + " GRADWIRE_DRY_RUN=1"), 0);
  EXPECT_GT(own_calls(preload()), 3 * 40);
  EXPECT_GT(own_calls(measuring()), 3 * 20);
}

INSTANTIATE_TEST_SUITE_P(Libraries, Harmless, ::testing::ValuesIn(libraries()),
                         [](const auto& library) { return library.param.name; });

}  // namespace
}  // namespace gradwire::test
