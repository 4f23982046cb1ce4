// Tests what ranks under the preload agree on, measure together and report, also if one of them lacks the preload.
#include <iterator>
#include <regex>

#include "tests/mpi_preload/preload.hpp"

namespace gradwire::test {
namespace {

TEST_P(Preload, OneRankDisabledDisablesAll) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  const Outcome outcome = with_each({preload(), preload() + " GRADWIRE_DISABLE=1", preload()}, "compressed");
  expect_ok(outcome, "compressed");
  EXPECT_TRUE(contains(outcome, "different no"));
  EXPECT_TRUE(contains(outcome, "disabled on rank 1 (GRADWIRE_DISABLE=1)")) << outcome.output;
  EXPECT_EQ(outcome.output.find("disabled on"), outcome.output.rfind("disabled on")) << "one warning";
  EXPECT_EQ(report().at("totals").at("calls"), 0U) << "a disabled job looks at no call";
  EXPECT_FALSE(report().at("disabled").is_null());
}

TEST_P(Preload, AnotherPolicyOnOneRankDisablesAll) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  const Outcome outcome =
      with_each({preload(), preload(), preload() + " " + policy("other", "floor = \"1MiB\"\n")}, "compressed");
  expect_ok(outcome, "compressed");
  EXPECT_TRUE(contains(outcome, "different no"));
  EXPECT_TRUE(contains(outcome, "ranks differ: rank 0 has policy GRADWIRE_CODEC=int8")) << outcome.output;
  EXPECT_EQ(report().at("totals").at("calls"), 0U);
  EXPECT_NE(report().at("disabled").get<std::string>().find("ranks differ"), std::string::npos);
}

TEST_P(Preload, ABadPolicyDisablesAndSaysWhere) {
  const Outcome outcome = with(2, preload() + " " + policy("bad", "flor = 3\n"), "compressed");
  expect_ok(outcome, "compressed");
  EXPECT_TRUE(contains(outcome, "bad.toml:2:1")) << outcome.output;
  EXPECT_EQ(compressed_calls(report()), 0U);
}

TEST_P(Preload, ADryRunOnlyCounts) {
  const Outcome outcome = with(2, preload() + " GRADWIRE_DRY_RUN=1", "compressed");
  expect_ok(outcome, "compressed");
  EXPECT_TRUE(contains(outcome, "different no"));
  EXPECT_EQ(compressed_calls(report()), 22U);
  EXPECT_TRUE(report().at("dry_run"));
  EXPECT_NEAR(report().at("totals").at("ratio_compressed"), 3.97, 0.05);
}

// Returns the number of calls with such counts, over all rows of the report.
std::uint64_t calls_of(const json& report, std::uint64_t least, std::uint64_t most, const char* what = "calls") {
  std::uint64_t calls = 0;
  for (const json& row : report.at("classes")) {
    const std::uint64_t count = row.at("count");
    calls += row.at("op") == "sum" && row.at("dtype") == "f32" && count >= least && count <= most
                 ? row.at(what).get<std::uint64_t>()
                 : 0;
  }
  return calls;
}

TEST_P(Preload, UnderAutoCallsAreMeasured) {
  const Outcome outcome = with(3, measuring(), "measured");
  expect_ok(outcome, "measured");
  const json told = report();
  EXPECT_EQ(told.at("policy"), "GRADWIRE_CODEC=auto");
  EXPECT_EQ(told.at("totals").at("calls"), 3U * 60 * 6) << "every call counts, including calls without a sample";
  EXPECT_EQ(calls_of(told, 1500, 1500), 3U * 60);
  EXPECT_EQ(calls_of(told, 16000, 16059), 3U * 60) << "the class has several sizes";
  EXPECT_TRUE(has_reason(told, "being measured"));
  bool measured = false;
  for (const json& row : told.at("classes")) {
    if (row.at("reason") == "no faster on this link") {
      measured = true;
      EXPECT_GT(row.at("measured").at("compressed_seconds"), 0) << row;
      EXPECT_GT(row.at("measured").at("passed_seconds"), 0) << row;
      EXPECT_GT(row.at("seconds"), 0) << row;
    }
  }
  // The machine decides which way wins: if ranks share cores, a polling library may be slower than compression.
  const bool compresses = calls_of(told, 1500, 1500, "compressed_calls") > 3U * 30 ||
                          calls_of(told, 9000, 9000, "compressed_calls") > 3U * 30 ||
                          calls_of(told, 16000, 16059, "compressed_calls") > 3U * 30;
  EXPECT_TRUE(measured || compresses) << told.dump(1);
}

TEST_P(Preload, ChoicesAreRecordedAndFollowed) {
  const std::string file = (work_ / "choices.json").string();
  const std::string env = measuring() + " GRADWIRE_CHOICES='" + file + "'";
  const auto hash = [](const Outcome& outcome) { return number_in(outcome, R"(hash ([0-9]+))"); };
  const Outcome first = with(3, env, "measured");
  expect_ok(first, "measured");
  const Outcome second = with(3, env, "measured");
  expect_ok(second, "measured");
  EXPECT_EQ(hash(second), hash(first));
  EXPECT_FALSE(has_reason(report(), "being measured"));
  EXPECT_TRUE(has_reason(report(), "passed in the recorded job"));

  json choices = json::parse(std::ifstream(file));
  EXPECT_EQ(choices.at("communicators").size(), 2U) << "one has all ranks, the other has two";
  for (json& communicator : choices.at("communicators")) {
    for (json& row : communicator.at("classes")) {
      row.at("ways") = {{0, 1}};
    }
  }
  std::ofstream(file) << choices;
  expect_ok(with(3, env, "measured"), "measured");
  EXPECT_EQ(compressed_calls(report()), 3U * 60 * 2 + 2U * 60) << "the file decides";

  const Outcome other =
      with(3, env + " GRADWIRE_CODEC= " + policy("two", "[defaults]\ncodec = \"auto\"\n"), "measured");
  expect_ok(other, "measured");
  EXPECT_TRUE(contains(other, "recorded under another policy")) << other.output;
  EXPECT_EQ(compressed_calls(report()), 0U);
}

// All ranks number communicators of the same ranks equally, although threads use them in another order on each.
// Mutation tried: each rank counts for itself, and the job hangs.
TEST_P(Preload, ChoicesAreFollowedByThreadsInAnyOrder) {
  const std::string file = (work_ / "crossed.json").string();
  const std::string env = measuring() + " GRADWIRE_CHOICES='" + file + "'";
  // If threads ask for tags at the same moment, one may get none for its first calls (D150), or, on a busy machine, for
  // all of them. Then its communicator has no class in the file.
  json choices;
  bool one_compresses = false;
  for (int i = 0; i < 5 && !one_compresses; ++i) {
    std::filesystem::remove(file);
    expect_ok(with(2, env, "crossed_threads multiple"), "crossed_threads");
    choices = json::parse(std::ifstream(file));
    for (json& communicator : choices.at("communicators")) {
      for (json& row : communicator.at("classes")) {
        row.at("ways") = {{0, communicator.at("number") > 0 && !one_compresses ? 1 : 0}};
      }
      one_compresses = one_compresses || (communicator.at("number") > 0 && !communicator.at("classes").empty());
    }
  }
  ASSERT_TRUE(one_compresses) << choices.dump(1);
  std::ofstream(file) << choices;
  std::uint64_t compressed = 0;
  for (int i = 0; i < 5 && compressed == 0; ++i) {
    expect_ok(with(2, env, "crossed_threads multiple"), "crossed_threads");
    compressed = compressed_calls(report());
  }
  EXPECT_GT(compressed, 0U) << choices.dump(1);
  EXPECT_LE(compressed, 2U * 12) << choices.dump(1);
}

// Each line appears once, with time and rank, and the status only with GRADWIRE_LOG=info.
TEST_P(Preload, NanIsToldOnceAndTheStatusToWhoAsks) {
  const auto lines = [](const Outcome& outcome, const std::string& text) {
    const std::regex line("gradwire [0-9]{2}:[0-9]{2}:[0-9]{2} rank 0: " + text);
    return std::distance(std::sregex_iterator(outcome.output.begin(), outcome.output.end(), line),
                         std::sregex_iterator());
  };
  const Outcome plain = with(3, preload(), "nonfinite");
  expect_ok(plain, "nonfinite");
  EXPECT_EQ(lines(plain, "NaN or Inf in a sum that was compressed"), 1) << plain.output;
  EXPECT_EQ(lines(plain, ".*calls compressed"), 0) << plain.output;
  const Outcome informed = with(3, preload() + " GRADWIRE_LOG=info", "nonfinite");
  EXPECT_EQ(lines(informed, "1 calls compressed, .* sent for .*, ratio 3\\.[0-9]+\n"), 1) << informed.output;
  const Outcome clean = with(3, preload(), "residuals");
  EXPECT_EQ(lines(clean, ""), 1) << clean.output;
  EXPECT_EQ(lines(clean, "sums are rounded from here on"), 1) << clean.output;
  EXPECT_EQ(lines(with(3, preload() + " GRADWIRE_LOG=error", "nonfinite"), ""), 0);
}

// If a rank has no drop-in, the others must neither wait forever nor sum without it. The drop-in is preloaded by hand,
// so no process knows which ranks have it.
TEST_P(Preload, ARankWithoutThePreloadIsNamed) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome =
      with_each({preload(), preload() + " GRADWIRE_DISABLE=1", "GRADWIRE_LOG=warn", preload()}, "compressed");
  EXPECT_NE(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome, "no answer from rank 2 of 4 in MPI_Init within 60s")) << outcome.output;
  EXPECT_FALSE(contains(outcome, "compressed ok"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(100));
}

// Ranks wait for a late rank as they do without gradwire: in a compressed call, and when the ranks of a communicator
// agree before its first one. Log lines name the rank.
TEST_P(Preload, ALateRankIsWaitedFor) {
  for (const std::string& setting : {preload(), measuring(), observing(), preload() + " GRADWIRE_DISABLE=1"}) {
    const Outcome outcome = with(3, setting + " GRADWIRE_WARN_AFTER=1s", "late_rank");
    expect_ok(outcome, "late_rank");
    const bool sends = setting == preload() || setting == measuring();
    EXPECT_EQ(contains(outcome, "is compressed and waits for rank"), sends) << outcome.output;
    EXPECT_EQ(contains(outcome, "nothing was heard of rank 1"), sends) << outcome.output;
  }
}

// A compressed call is bounded if GRADWIRE_TIMEOUT is set. If errors return, both ranks get one.
TEST_P(Preload, ARankThatGaveUpIsNoticed) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = with(2, preload() + " GRADWIRE_TIMEOUT=3s", "given_up");
  expect_ok(outcome, "given_up");
  EXPECT_TRUE(contains(outcome, "rank 0 was told: gradwire: rank 0: ")) << outcome.output;
  EXPECT_TRUE(contains(outcome, "got nothing for 3s, waiting for rank 1")) << outcome.output;
  EXPECT_TRUE(contains(outcome, "rank 1 was told: gradwire: ")) << outcome.output;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// Mutation tried: only ranks that shared a call are asked; then rank 0's numbers appear as if they were all.
TEST_P(Preload, TheReportHoldsEveryRanksCalls) {
  expect_ok(with(4, preload(), "halves"), "halves");
  EXPECT_EQ(report().at("note"), nullptr);
  EXPECT_EQ(report().at("totals").at("calls"), 2U);
  EXPECT_EQ(compressed_calls(report()), 2U) << "only ranks 0 and 2 count";

  expect_ok(with(3, preload(), "requests_only"), "requests_only");
  const json told = report();
  EXPECT_EQ(told.at("note"), nullptr);
  const bool mpich = GetParam().name == "Mpich";  // it has MPI 4, with more functions
  EXPECT_EQ(told.at("totals").at("calls"), 3U * (mpich ? 7 : 5));
  std::uint64_t persistent = 0;
  for (const json& row : told.at("classes")) {
    EXPECT_EQ(row.at("reason"), "nonblocking");
    persistent += row.at("function") == "MPI_Allreduce_init" ? row.at("calls").get<std::uint64_t>() : 0;
  }
  EXPECT_EQ(persistent, mpich ? 3U : 0U);
}

TEST_P(Preload, ARankThatExitsEarlyEndsTheJob) {
  const Outcome outcome = with(3, preload() + " GRADWIRE_TIMEOUT=5s", "early_exit");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "it hung: " << outcome.output;
  EXPECT_FALSE(contains(outcome, "early_exit ok"));
}

// Mutation tried: the two layers of one size share their residuals; the error is 0.0174.
TEST_P(Preload, NewBuffersKeepTheirResiduals) {
  const std::string mean = R"(mean error ([0-9.]+))";
  const Outcome kept = with(2, preload() + " " + policy("int4", "[defaults]\ncodec = \"int4\"\n"), "steps");
  expect_ok(kept, "steps");
  const json told = report();
  EXPECT_EQ(told.at("totals").at("resets"), 0);
  EXPECT_TRUE(has_reason(told, "step not known yet"));
  EXPECT_EQ(compressed_calls(told), 2 * (3 * 160 - 16U));
  const Outcome dropped =
      with(2, preload() + " " + policy("off", "[defaults]\ncodec = \"int4\"\nerror_feedback = \"off\"\n"), "steps");
  expect_ok(dropped, "steps");
  EXPECT_LT(number_in(kept, mean), 0.003);
  EXPECT_GT(number_in(dropped, mean), 0.01) << "otherwise the case shows nothing";
}

// Equal calls look like steps of one call, whose residual all layers would share. Mutation tried: the shortest period
// is taken for the step; the error is ten times as large.
TEST_P(Preload, EqualLayersKeepResidualsOfTheirOwn) {
  const Outcome kept = with(2, preload() + " " + policy("int4", "[defaults]\ncodec = \"int4\"\n"), "equal_layers");
  expect_ok(kept, "equal_layers");
  EXPECT_EQ(compressed_calls(report()), 2 * (4 * 160 - 16U));
  EXPECT_LT(number_in(kept, R"(mean error ([0-9.]+))"), 0.003);
}

TEST_P(Preload, RulesByOrderApplyOnceTheStepIsKnown) {
  const Outcome outcome =
      with(2, preload() + " " + policy("order", "[[rule]]\norder = 1\ncodec = \"exact\"\n"), "steps");
  expect_ok(outcome, "steps");
  const json told = report();  // outlives the loop
  for (const json& row : told.at("classes")) {
    if (row.at("order").is_null()) {
      EXPECT_EQ(row.at("compressed_calls"), 0) << row;
    } else {
      EXPECT_EQ(row.at("reason").is_null(), row.at("order") != 1) << row;
    }
  }
}

}  // namespace
}  // namespace gradwire::test
