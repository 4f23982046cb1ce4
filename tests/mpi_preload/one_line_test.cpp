// Runs a training job without gradwire, with the preload, and with its #include <mpi.h> replaced.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/run_program.hpp"

namespace gradwire::test {
namespace {

using nlohmann::json;

struct JobRun {
  Outcome outcome;
  json report;
};

json read_and_remove(const std::string& file) {
  std::ifstream stream(file);
  json report = stream ? json::parse(stream, nullptr, false) : json();
  std::filesystem::remove(file);
  return report;
}

std::string temporary(const std::string& ending) {
  return (std::filesystem::temp_directory_path() / ("gradwire_one_line_" + std::to_string(::getpid()) + ending))
      .string();
}

// `environment` and `program` are as in a shell; there are 4 ranks. The run compresses all it can, or follows a policy.
JobRun run_with_report(const std::string& environment, const std::string& program) {
  const std::string codec = environment.find("GRADWIRE_POLICY") == std::string::npos ? "GRADWIRE_CODEC=int8 " : "";
  const std::string file = temporary(".json");
  JobRun run;
  run.outcome = run_program(std::string("'") + GRADWIRE_SOURCE_DIR + "/tests/support/mpi_run' '" + GRADWIRE_MPIEXEC +
                            "' 4 env GRADWIRE_REPORT='" + file + "' " + codec + environment + " '" + GRADWIRE_BIN +
                            "'/" + program);
  run.report = read_and_remove(file);
  return run;
}

constexpr const char* kFinalLoss = R"(final loss ([0-9.e+-]+))";

void expect_compressed_and_as_good(const JobRun& run, double loss) {
  ASSERT_EQ(run.outcome.status, 0) << run.outcome.output;
  ASSERT_TRUE(run.report.is_object()) << run.outcome.output;
  const json& totals = run.report.at("totals");
  EXPECT_GT(totals.at("ratio_compressed"), 3.9);
  EXPECT_GT(totals.at("ratio"), 3.7);
  EXPECT_EQ(totals.at("compressed_calls"), 4 * 2 * 300);  // two of its four tensors reach the floor
  EXPECT_NEAR(number_in(run.outcome, kFinalLoss), loss, 0.005 * loss);
}

// Returns the loss of the job without gradwire.
double loss_before() {
  static const JobRun run = run_with_report("", "existing_mpi_job");
  EXPECT_EQ(run.outcome.status, 0) << run.outcome.output;
  EXPECT_TRUE(run.report.is_null());
  return number_in(run.outcome, kFinalLoss);
}

TEST(OneLine, AJobLearnsAsWellWithFewerBytes) {
  const JobRun preloaded = run_with_report(std::string("LD_PRELOAD='") + GRADWIRE_DROP_IN + "'", "existing_mpi_job");
  expect_compressed_and_as_good(preloaded, loss_before());
  EXPECT_NE(preloaded.outcome.output.find("gradwire: 2400 of "), std::string::npos) << "no summary";
  const JobRun replaced = run_with_report("", "existing_mpi_job_replaced");
  expect_compressed_and_as_good(replaced, loss_before());
}

// Mutation tried: MPI_Comm_free does not look for a session's communicators.
TEST(OneLine, TheReportSaysWhetherTheJobHasASession) {
  const std::string preload = std::string("LD_PRELOAD='") + GRADWIRE_DROP_IN + "'";
  const JobRun with = run_with_report(preload, "06_session 20");
  ASSERT_EQ(with.outcome.status, 0) << with.outcome.output;
  EXPECT_TRUE(with.report.at("has_session")) << with.outcome.output;
  EXPECT_EQ(with.report.at("totals").at("compressed_calls"), 0);
  EXPECT_EQ(with.outcome.output.find("main reason"), std::string::npos) << with.outcome.output;
  EXPECT_FALSE(run_with_report(preload, "existing_mpi_job").report.at("has_session"));
}

#ifdef GRADWIRE_TOOL
// The whole command as in the README: the tool finds the preload beside itself and gives it to every rank.
TEST(OneLine, TheToolRunsTheJob) {
  const std::string file = temporary(".json");
  JobRun run;
  run.outcome = run_program(
      std::string(::geteuid() == 0 ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " : "") +
      "timeout -k 5 120 '" + GRADWIRE_TOOL + "' run --codec int8 --report '" + file + "' -- '" + GRADWIRE_MPIEXEC +
      "' --oversubscribe --mca mpi_yield_when_idle 1 -np 4 '" + GRADWIRE_BIN + "'/existing_mpi_job");
  run.report = read_and_remove(file);
  expect_compressed_and_as_good(run, loss_before());
}
#endif

TEST(OneLine, TheHeaderServesC) {
  const JobRun run = run_with_report("", "mpi_replace_caller");
  ASSERT_EQ(run.outcome.status, 0) << run.outcome.output;
  EXPECT_NE(run.outcome.output.find("caller ok"), std::string::npos) << run.outcome.output;
  std::uint64_t named = 0;
  for (const json& row : run.report.at("classes")) {
    named += row.at("name") == "layer.weight" ? row.at("calls").get<std::uint64_t>() : 0;
  }
  EXPECT_EQ(run.report.at("totals").at("compressed_calls"), 4 * 60);
  EXPECT_EQ(named, 4 * (60 - 16U)) << "calls have names once the step is known";
}

TEST(OneLine, MemoryOfAGpuIsCopied) {
  const JobRun run = run_with_report(std::string("LD_PRELOAD='") + GRADWIRE_DROP_IN + "'", "mpi_preload_device_job");
  ASSERT_EQ(run.outcome.status, 0) << run.outcome.output;
  EXPECT_NE(run.outcome.output.find("device ok"), std::string::npos) << run.outcome.output;
  EXPECT_EQ(run.report.at("totals").at("compressed_calls"), 4 * 5);
}

// Names choose rules; a rule by name takes effect once the step is known, and then all ranks compare names.
TEST(OneLine, RulesByNameApply) {
  const std::string file = temporary(".toml");
  std::ofstream(file) << "version = 1\n[[rule]]\nmatch = \"layer.*\"\ncodec = \"exact\"\n";
  const JobRun run = run_with_report("GRADWIRE_POLICY='" + file + "'", "mpi_replace_caller");
  std::filesystem::remove(file);
  ASSERT_EQ(run.outcome.status, 0) << run.outcome.output;
  EXPECT_EQ(run.report.at("totals").at("compressed_calls"), 0);
}

}  // namespace
}  // namespace gradwire::test
