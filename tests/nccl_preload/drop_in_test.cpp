// Tests the decisions and counts of the drop-in, and what it forgets, over a fake library: each job runs without and
// with the drop-in, its own output must not change, and the report must contain its calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "nccl_preload/run_apart.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::uint64_t kLarge = 1 << 20;
const std::string kDevice = "device path not built";

struct Seen {
  OutcomeApart outcome;
  json report;

  /// Returns the number of calls of the classes that have all of these fields.
  [[nodiscard]] std::uint64_t calls(const json& fields) const {
    std::uint64_t sum = 0;
    for (const json& row : report.value("classes", json::array())) {
      bool same = true;
      for (const auto& [key, value] : fields.items()) {
        same = same && row.at(key) == value;
      }
      sum += same ? row.at("calls").get<std::uint64_t>() : 0;
    }
    return sum;
  }
  [[nodiscard]] std::uint64_t calls() const { return report.at("totals").at("calls"); }
};

Seen run_job(const std::string& scenario, const std::string& environment = "") {
  const std::string job = std::string(GRADWIRE_FAKE_JOB) + " " + scenario;
  const OutcomeApart alone = run_apart("", job);
  EXPECT_EQ(alone.status, 0) << alone.err;
  const ScratchFolder scratch;
  const std::string report = (scratch.path() / "report.json").string();
  Seen seen;
  seen.outcome = run_apart(environment + " GRADWIRE_REPORT=" + report + " LD_PRELOAD=" GRADWIRE_DROP_IN, job);
  EXPECT_EQ(seen.outcome.status, 0) << seen.outcome.err;
  EXPECT_EQ(seen.outcome.out, alone.out) << "the job's own results changed";
  EXPECT_FALSE(std::filesystem::exists(report)) << "that name belongs to the report of MPI calls";
  if (std::filesystem::exists(report + ".nccl")) {
    seen.report = json::parse(read_text(report + ".nccl"));
  }
  return seen;
}

TEST(NcclDropIn, EligibleCallsWaitForTheDevicePath) {
  const Seen seen = run_job("eligible");
  EXPECT_EQ(seen.calls(), 6U);
  EXPECT_EQ(seen.calls({{"reason", kDevice}}), 6U);
  EXPECT_EQ(seen.calls({{"function", "ncclAllReduce"}, {"dtype", "f32"}, {"op", "sum"}, {"count", kLarge}}), 2U);
  EXPECT_EQ(seen.calls({{"dtype", "f16"}, {"op", "avg"}, {"communicator_size", 4}}), 1U);
  EXPECT_EQ(seen.calls({{"dtype", "bf16"}}), 1U);
  EXPECT_EQ(seen.calls({{"function", "ncclReduceScatter"}, {"count", 16384}}), 1U) << "the floor counts all segments";
  EXPECT_THAT(seen.outcome.err,
              HasSubstr("gradwire: NCCL, this rank: 6 calls, none compressed: 6 device path not built\n"));
  EXPECT_THAT(seen.outcome.err, HasSubstr("asked for size: 1\n")) << "it asks once per communicator";
}

TEST(NcclDropIn, TheReportAddsUp) {
  const json report = run_job("eligible").report;
  EXPECT_EQ(report.at("world"), 4);
  EXPECT_THAT(report.at("library").get<std::string>(), ::testing::StartsWith("NCCL 2."));
  // There are 2 x f32 and two of two bytes, 2^20 elements each; 64 KiB all-reduced; 4 x 4096 floats reduce-scattered.
  const std::uint64_t in = 12 * kLarge + 65536 + 65536;
  const std::uint64_t dense = 3 * 12 * kLarge / 2 + 3 * 65536ULL / 2 + 3 * 65536ULL / 4;
  EXPECT_EQ(report.at("totals").at("bytes_in"), in);
  EXPECT_EQ(report.at("totals").at("bytes_dense"), dense);
  EXPECT_EQ(report.at("totals").at("bytes_sent"), dense);
  EXPECT_EQ(report.at("totals").at("compressed_calls"), 0);
  EXPECT_EQ(report.at("totals").at("ratio"), 1.0);
}

TEST(NcclDropIn, IneligibleCallsHaveTheirOwnReason) {
  const Seen seen = run_job("ineligible");
  EXPECT_EQ(seen.calls({{"reason", kDevice}}), 2U);
  EXPECT_EQ(seen.calls({{"reason", kDevice}, {"op", "scaled sum"}}), 2U) << "known until destroyed";
  EXPECT_EQ(seen.calls({{"reason", "below the floor"}}), 4U);
  EXPECT_EQ(seen.calls({{"reason", "type is not compressed"}}), 6U);
  EXPECT_EQ(seen.calls({{"reason", "type is not compressed"}, {"dtype", "f64"}}), 1U);
  EXPECT_EQ(seen.calls({{"reason", "neither sum nor average"}}), 4U);
  EXPECT_EQ(seen.calls({{"reason", "captured into a graph"}}), 2U);
  EXPECT_EQ(seen.calls({{"reason", "communicator of one rank"}}), 1U);
  EXPECT_EQ(seen.calls({{"reason", "bad arguments"}}), 2U);
  EXPECT_EQ(seen.calls({{"reason", "unknown communicator"}}), 1U);
  EXPECT_EQ(seen.calls(), 22U);
}

TEST(NcclDropIn, NonblockingCommunicatorsPass) {
  const Seen seen = run_job("nonblocking");
  EXPECT_EQ(seen.calls({{"reason", "nonblocking"}}), 3U) << "a child without a config is like its parent";
  EXPECT_EQ(seen.calls({{"reason", kDevice}}), 1U);
}

// ncclBcast calls the public ncclBroadcast, which is the drop-in's. Mutation tried: without InsideNccl there are 3
// broadcasts.
TEST(NcclDropIn, OtherCollectivesPassOnceEach) {
  const Seen seen = run_job("others");
  EXPECT_EQ(seen.calls({{"reason", "function is always passed on"}}), 9U);
  EXPECT_EQ(seen.calls({{"function", "ncclBroadcast"}}), 2U);
  EXPECT_EQ(seen.calls({{"reason", kDevice}}), 1U);
  EXPECT_THAT(seen.outcome.out, HasSubstr("ncclBroadcast 2\n")) << "the fake's own ncclBcast made one of them";
}

TEST(NcclDropIn, Groups) {
  const Seen seen = run_job("groups");
  EXPECT_EQ(seen.calls({{"count", kLarge + 1}, {"reason", kDevice}}), 1U) << "an end without a start opens nothing";
  EXPECT_EQ(seen.calls({{"count", kLarge + 2}, {"reason", "inside a group"}}), 2U);
  EXPECT_EQ(seen.calls({{"count", kLarge + 3}, {"reason", kDevice}}), 1U) << "the group made this child";
  EXPECT_EQ(seen.calls({{"count", kLarge + 4}}), 0U) << "simulated";
  EXPECT_EQ(seen.calls({{"count", kLarge + 5}, {"reason", kDevice}}), 1U) << "a simulated end is an end";
}

TEST(NcclDropIn, CommunicatorsAreForgotten) {
  const Seen seen = run_job("lifetime");
  EXPECT_THAT(seen.outcome.out, HasSubstr("same address: 1\n"));
  EXPECT_EQ(seen.calls({{"count", kLarge + 1}, {"reason", kDevice}}), 1U);
  EXPECT_EQ(seen.calls({{"count", kLarge + 2}, {"reason", kDevice}}), 1U) << "NCCL refused to destroy it";
  EXPECT_EQ(seen.calls({{"count", kLarge + 3}, {"reason", "unknown communicator"}}), 1U);
  EXPECT_EQ(seen.calls({{"count", kLarge + 4}, {"communicator_size", 2}}), 1U) << "it is new at the same address";
  EXPECT_EQ(seen.calls({{"count", kLarge + 5}, {"communicator_size", 3}}), 1U) << "after an abort";
  EXPECT_EQ(seen.calls({{"count", kLarge + 6}, {"reason", "bad arguments"}, {"communicator_size", 0}}), 1U)
      << "finalized";
  EXPECT_EQ(seen.calls({{"count", kLarge + 8}, {"reason", "bad arguments"}}), 1U) << "revoked";
  EXPECT_EQ(seen.calls({{"count", kLarge + 9}, {"reason", kDevice}}), 1U) << "this is the child of a revoked one";
  EXPECT_THAT(seen.outcome.err, HasSubstr("asked for size: 5\n")) << "it asks once for each used communicator";
}

// Mutation tried: without a bound there are 3000 rows.
TEST(NcclDropIn, ClassesAreBounded) {
  const Seen seen = run_job("many_classes");
  EXPECT_EQ(seen.calls(), 3000U);
  EXPECT_EQ(seen.report.at("classes").size(), 2001U);
  EXPECT_EQ(seen.calls({{"count", 0}}), 1000U);
}

TEST(NcclDropIn, Threads) {
  const Seen seen = run_job("threads");
  EXPECT_EQ(seen.calls({{"count", kLarge + 1}, {"reason", "inside a group"}}), 4000U);
  EXPECT_EQ(seen.calls({{"count", kLarge + 2}, {"reason", kDevice}}), 2000U)
      << "another thread's group is not this one's";
  EXPECT_EQ(seen.calls({{"function", "ncclBroadcast"}}), 2000U);
  EXPECT_EQ(seen.calls(), 8000U);
}

TEST(NcclDropIn, OneProcessWithAllDevices) {
  const Seen seen = run_job("all_devices");
  EXPECT_EQ(seen.calls({{"reason", kDevice}, {"communicator_size", 3}}), 3U);
}

TEST(NcclDropIn, OneRankSpeaks) {
  const Seen seen = run_job("not_first");
  EXPECT_TRUE(seen.report.is_null());
  EXPECT_EQ(seen.outcome.err, "asked for size: 1\n");
}

TEST(NcclDropIn, AForkedChildSaysNothing) {
  const Seen seen = run_job("forks");
  EXPECT_EQ(seen.calls(), 1U);
  const std::size_t first = seen.outcome.err.find("gradwire: NCCL");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(seen.outcome.err.find("gradwire: NCCL", first + 1), std::string::npos) << seen.outcome.err;
}

TEST(NcclDropIn, NothingIsSaidOfNothing) {
  const Seen seen = run_job("silent");
  EXPECT_TRUE(seen.report.is_null());
  EXPECT_EQ(seen.outcome.err, "asked for size: 0\n");
}

TEST(NcclDropIn, TheSummaryCanBeSilenced) {
  EXPECT_EQ(run_job("eligible", "GRADWIRE_LOG=off").outcome.err, "asked for size: 1\n");
  EXPECT_EQ(run_job("eligible", "GRADWIRE_LOG=error").outcome.err, "asked for size: 1\n");
}

TEST(NcclDropIn, Disabled) {
  const Seen seen = run_job("eligible", "GRADWIRE_DISABLE=1");
  EXPECT_EQ(seen.calls({{"reason", "disabled"}}), 6U);
}

TEST(NcclDropIn, ThePolicyMovesTheFloor) {
  const ScratchFolder scratch;
  const std::string policy = (scratch.path() / "policy.toml").string();
  std::ofstream(policy) << "version = 1\nfloor = \"2MiB\"\n";
  const Seen seen = run_job("eligible", "GRADWIRE_POLICY=" + policy);
  EXPECT_EQ(seen.calls({{"reason", kDevice}}), 4U) << "2^20 elements of two bytes are just enough";
  EXPECT_EQ(seen.calls({{"reason", "below the floor"}}), 2U);
}

TEST(NcclDropIn, ABadPolicyDisables) {
  const Seen seen = run_job("eligible", "GRADWIRE_POLICY=/nonexistent.toml");
  EXPECT_EQ(seen.calls({{"reason", "disabled"}}), 6U);
  EXPECT_THAT(seen.outcome.err, HasSubstr("/nonexistent.toml"));
}

TEST(NcclDropIn, AReportThatCannotBeWrittenIsNoCrash) {
  const OutcomeApart outcome =
      run_apart("GRADWIRE_REPORT=/nonexistent/r.json LD_PRELOAD=" GRADWIRE_DROP_IN, GRADWIRE_FAKE_JOB " eligible");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err,
              HasSubstr("the report is lost: /nonexistent/r.json.nccl: cannot be written (No such file or directory); "
                        "set GRADWIRE_REPORT"));
}

// The library lacks a function of the header: the call gives an error, neither a crash nor a call of another NCCL on
// this machine.
TEST(NcclDropIn, AFunctionThatTheLibraryLacks) {
  const OutcomeApart outcome = run_apart("LD_PRELOAD=" GRADWIRE_DROP_IN, GRADWIRE_FAKE_JOB " missing");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("ncclMemAlloc: 2\n"));
  EXPECT_THAT(outcome.err, HasSubstr("has no pncclMemAlloc"));
}

}  // namespace
}  // namespace gradwire::test
