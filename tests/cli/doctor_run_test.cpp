// Tests gradwire doctor as a job, before a launcher, and alone.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/read_file.hpp"
#include "cli/tool.hpp"

namespace gradwire::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class DoctorRun : public ToolTest {
 protected:
  /// Runs the tool where it was built, beside the program that it becomes.
  static Outcome doctor(const std::string& arguments, const std::string& variables = "") {
    return run_program("env -u GRADWIRE_POLICY " + root_variables() + " " + variables + " timeout -k 5 90 " +
                       std::string(GRADWIRE_BIN) + "/gradwire doctor " + arguments);
  }
  static std::string launcher() {
    return std::string("-- ") + GRADWIRE_MPIEXEC + " --oversubscribe --mca mpi_yield_when_idle 1 -np 2 ";
  }
};

TEST_F(DoctorRun, AJobHasNoProblemAndItsLinksAreMeasured) {
  const Outcome job = run_program(std::string(GRADWIRE_SOURCE_DIR) + "/tests/support/mpi_run " + GRADWIRE_MPIEXEC +
                                  " 2 " + GRADWIRE_BIN + "/gradwire doctor");
  EXPECT_EQ(job.status, 0) << job.output;
  EXPECT_THAT(job.output, HasSubstr("gradwire doctor: 2 ranks on 1 host, 0 problems, "));
  EXPECT_THAT(job.output, HasSubstr("ok       policy: GRADWIRE_POLICY is not set: the built-in policy\n"));
  EXPECT_THAT(job.output, HasSubstr("libgradwire_mpi.so"));
  const double there = number_in(job, "Bandwidth, Mbit/s, sender by row\nrank .*\n0 [^ ]+ +- +([0-9.]+)");
  const double back = number_in(job, "\n1 [^ ]+ +([0-9.]+) +-\nLatency one way, us\n");
  const double latency = number_in(job, "Latency one way, us\nrank .*\n0 [^ ]+ +- +([0-9.]+)");
  EXPECT_GT(there, 0);
  EXPECT_GT(back, 0);
  EXPECT_GT(latency, 0.01);
  EXPECT_LT(latency, 5000);
}

TEST_F(DoctorRun, NamesTheRankWhosePolicyIsMissing) {
  const std::string policy = write("policy.toml", "[defaults]\ncodec = \"int8\"\n");
  const std::string json = (folder_ / "doctor.json").string();
  const std::string rank = "sh -c '[ \"$OMPI_COMM_WORLD_RANK\" = 0 ] || unset GRADWIRE_POLICY; exec \"$0\" \"$@\"'";
  const Outcome outcome = doctor("--json " + json + " " + launcher() + rank, "GRADWIRE_POLICY=" + policy);
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("2 ranks on 1 host, 1 problem, "));
  EXPECT_THAT(outcome.output, ContainsRegex("problem  policy, rank 1 \\([^)]+\\): GRADWIRE_POLICY is not set, where"));
  const auto all = nlohmann::json::parse(read_file(json, 1 << 20, "report"));
  EXPECT_EQ(all["findings"][0]["ranks"], nlohmann::json::parse("[1]"));
  EXPECT_EQ(all["ranks"][0]["policy"]["path"], policy);
}

TEST_F(DoctorRun, ALauncherGetsTheToolsOwnPath) {
  write("policy.toml", "codec = \"int9\"\n");
  const Outcome outcome = doctor(launcher(), "GRADWIRE_POLICY=" + (folder_ / "policy.toml").string());
  EXPECT_EQ(outcome.status, 1) << "no rank can read the policy\n" << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("problem  policy, all ranks: "));
  EXPECT_THAT(outcome.output, HasSubstr("policy.toml:1"));
  EXPECT_EQ(outcome.output.find("non-zero"), std::string::npos) << "the launcher must not print anything\n"
                                                                << outcome.output;
  const Outcome echo = doctor("-- echo started as");
  EXPECT_EQ(echo.status, 2);
  EXPECT_THAT(echo.output, ContainsRegex("^started as /.*/gradwire doctor --launched\n"));
  EXPECT_THAT(echo.output, HasSubstr("ended with 0 and no rank reported; name the launcher and its options alone"));
}

TEST_F(DoctorRun, ALauncherThatFailsSaysSoItself) {
  const Outcome option = doctor(launcher() + "--no-such-option");
  EXPECT_EQ(option.status, 2) << option.output;
  EXPECT_THAT(option.output, ContainsRegex("no-such-option(.|\n)*and no rank reported"));
  const Outcome program = doctor(launcher() + "no_such_program");
  EXPECT_EQ(program.status, 2) << program.output;
  EXPECT_THAT(program.output, ContainsRegex("no_such_program(.|\n)*and no rank reported"));
  write_script("fails", "echo why >&2; exit 1");
  const Outcome fails = doctor("-- " + (folder_ / "fails").string());
  EXPECT_EQ(fails.status, 2);
  EXPECT_THAT(fails.output,
              HasSubstr("why\ngradwire: doctor: the launcher ended with 1 and no rank reported; see what"));
}

TEST_F(DoctorRun, AllWrongVariablesAndPlacesAreNamed) {
  const std::string file = write("file", "x");
  const Outcome outcome = doctor(
      "", "GRADWIRE_TRACE=tr:steps=9-1 GRADWIRE_LOG=loud GRADWIRE_METRICS=otlp:" + file + "/m GRADWIRE_REPORT=" + file);
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("GRADWIRE_TRACE is \"tr:steps=9-1\""));
  EXPECT_THAT(outcome.output, HasSubstr("GRADWIRE_LOG is \"loud\""));
  EXPECT_THAT(outcome.output, ContainsRegex("GRADWIRE_METRICS names [^ ]+/file/m,"));
  EXPECT_THAT(outcome.output, ContainsRegex("GRADWIRE_REPORT names [^ ]+/file,"));
}

TEST_F(DoctorRun, AJobBehindTheLauncherIsNoReport) {
  const Outcome job = doctor(launcher() + "/bin/true");
  EXPECT_EQ(job.status, 2) << job.output;
  EXPECT_THAT(job.output, HasSubstr("ended with 0 and no rank reported; name the launcher and its options alone"));
}

TEST_F(DoctorRun, AloneItChecksOneHostAndSaysHowToStartAJob) {
  const Outcome alone = doctor("");
  EXPECT_EQ(alone.status, 0) << alone.output;
  EXPECT_THAT(alone.output, HasSubstr("gradwire doctor: 1 rank on 1 host, 0 problems, "));
  EXPECT_THAT(alone.output, HasSubstr("gradwire doctor -- mpirun --host a,b -np 4\n"));
  EXPECT_EQ(doctor("--json /proc/none/x").status, 2);
  const Outcome copy = gradwire("doctor");  // without the program beside it
  EXPECT_EQ(copy.status, 2);
  EXPECT_THAT(copy.output, HasSubstr("gradwire-doctor cannot be started"));
}

TEST_F(DoctorRun, ALauncherOfAnotherMpiIsNamed) {
  const std::string launcher = GRADWIRE_MPICH;
  if (launcher.empty()) {
    GTEST_SKIP() << "no launcher of MPICH";
  }
  const Outcome outcome = doctor("-- " + launcher + " -np 2");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("problem  MPI, here: a launcher started 2 processes (PMI_SIZE), but each"));
  EXPECT_EQ(outcome.output.find("gradwire doctor:"), outcome.output.rfind("gradwire doctor:")) << "only one prints";
}

TEST_F(DoctorRun, WrongCommandLinesAreRefused) {
  const Outcome forgotten = gradwire("doctor mpirun -np 2");
  EXPECT_EQ(forgotten.status, 2);
  EXPECT_THAT(forgotten.output, HasSubstr("-- must stand before the command; write gradwire doctor -- mpirun -np 2"));
  const Outcome empty = gradwire("doctor --");
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.output, HasSubstr("there is no command; write gradwire doctor -- mpirun -np 4\n"));
  const Outcome option = gradwire("doctor --jsno x");
  EXPECT_EQ(option.status, 2);
  EXPECT_THAT(option.output, HasSubstr("--jsno is no option of gradwire doctor"));
  EXPECT_EQ(gradwire("doctor -- no_such_launcher -np 2").status, 127);
  EXPECT_THAT(gradwire("doctor --help").output, HasSubstr("Usage: gradwire doctor [OPTIONS] [-- COMMAND...]\n"));
  EXPECT_THAT(gradwire("doctor -- sbatch job.sh").output, HasSubstr("sbatch returns before the job runs"));
}

}  // namespace
}  // namespace gradwire::test
