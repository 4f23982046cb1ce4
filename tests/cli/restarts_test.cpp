// Tests gradwire run --restarts: when a command is started again, when it is not, and on which hosts.
#include "cli/restarts.hpp"

#include <gmock/gmock.h>

#include <iterator>
#include <set>
#include <sstream>

#include "cli/page_support.hpp"
#include "cli/report_json.hpp"
#include "cli/tool.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using cli::RestartBackoff;
using std::chrono::seconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RestartBackoff, WaitsTwiceAsLongEachTime) {
  RestartBackoff backoff;
  for (const int wait : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_EQ(backoff.after(seconds(20)), seconds(wait));
  }
  EXPECT_EQ(backoff.after(seconds(60)), seconds(1)) << "after a run that worked";
  EXPECT_EQ(backoff.after(seconds(59)), seconds(2));
}

TEST(RestartBackoff, EndsWhereRunsEndTooSoon) {
  RestartBackoff backoff;
  EXPECT_EQ(backoff.after(seconds(1)), seconds(1));
  EXPECT_EQ(backoff.after(seconds(4)), seconds(2));
  EXPECT_EQ(backoff.after(seconds(5)), seconds(4)) << "the failures are not consecutive";
  EXPECT_EQ(backoff.after(seconds(0)), seconds(8));
  EXPECT_EQ(backoff.after(seconds(4)), seconds(16));
  EXPECT_EQ(backoff.after(seconds(4)), std::nullopt);
}

class Restarts : public ToolTest {
 protected:
  /// Writes a job that first writes a line into the file `starts`.
  void write_job(const std::string& rest) const {
    write_script("job.sh", "echo \"start $GRADWIRE_RESTART\" | tee -a starts\necho $GRADWIRE_JOB >>names\n" + rest);
  }
  [[nodiscard]] std::string starts() const { return read_text(folder_ / "starts"); }
  /// Sends the signal to gradwire alone once the file exists.
  [[nodiscard]] Outcome gradwire_until(const std::string& file, const std::string& signal) const {
    return run_program("cd '" + folder_.string() +
                       "' && { timeout -k 1 60 bin/gradwire run --restarts 5 -- ./job.sh & } && pid=$!; "
                       "for i in $(seq 300); do [ -e " +
                       file + " ] && break; sleep 0.1; done; sleep 0.3; kill -" + signal +
                       " $(pgrep -P $pid) && wait $pid");
  }
};

TEST_F(Restarts, AJobStartsAgainUntilItSucceeds) {
  write_job("[ \"$GRADWIRE_RESTART\" = 2 ] || exit 3\n");
  const Outcome outcome = gradwire("run --restarts 5 -- ./job.sh");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(starts(), "start 0\nstart 1\nstart 2\n");
  std::istringstream names(read_text(folder_ / "names"));
  const std::set<std::string> different{std::istream_iterator<std::string>(names), {}};
  EXPECT_EQ(different.size(), 1U) << "it keeps its name";
  EXPECT_THAT(outcome.output,
              ContainsRegex("gradwire: the job ended with status 3 after [0-9.]+m?s; restart 1 of 5 in "
                            "1s; lost is what it did since its last saved state, at most [0-9.]+m?s\n"));
  EXPECT_THAT(outcome.output, HasSubstr("; restart 2 of 5 in 2s; "));
  EXPECT_THAT(outcome.output, ContainsRegex("gradwire: 2 restarts, which took [34][.0-9]*s: the runs that failed"));
}

TEST_F(Restarts, TheLastStatusIsTheCommandsOwn) {
  write_job("exit $((4 + GRADWIRE_RESTART))\n");
  const Outcome outcome = gradwire("run --restarts 1 -- ./job.sh");
  EXPECT_EQ(outcome.status, 5);
  EXPECT_EQ(starts(), "start 0\nstart 1\n");
  EXPECT_THAT(outcome.output, HasSubstr("no restart, since --restarts 1 is used up\n"));
}

TEST_F(Restarts, WithoutTheOptionNothingStartsAgain) {
  write_job("exit 3\n");
  for (const std::string options : {"", "--restarts 0 "}) {
    const Outcome outcome = gradwire("run " + options + "-- ./job.sh");
    EXPECT_EQ(outcome.status, 3);
    EXPECT_THAT(outcome.output, Not(HasSubstr("restart")));
  }
  EXPECT_EQ(starts(), "start \nstart \n");
}

TEST_F(Restarts, EndsWhereTheJobEndsTooSoon) {
  write_job("kill -9 $$\n");
  const Outcome outcome = gradwire("run --restarts 100 -- ./job.sh");
  EXPECT_EQ(outcome.status, 128 + 9);
  EXPECT_EQ(starts(), "start 0\nstart 1\nstart 2\n");
  EXPECT_THAT(outcome.output, HasSubstr("the job ended with status 137 (Killed) after "));
  EXPECT_THAT(outcome.output, HasSubstr("no restart, since it ended within 5s of its start 3 times in a row"));
}

TEST_F(Restarts, ASignalEndsTheJobForGood) {
  for (const std::string signal : {"TERM", "INT"}) {
    std::filesystem::remove(folder_ / "ready");
    std::filesystem::remove(folder_ / "starts");
    write_job("trap 'exit 9' " + signal + "\n: >ready\nfor i in $(seq 300); do sleep 0.1; done\n");
    const Outcome outcome = gradwire_until("ready", signal);
    EXPECT_EQ(outcome.status, 9) << outcome.output;
    EXPECT_EQ(starts(), "start 0\n");
    EXPECT_THAT(outcome.output, HasSubstr("no restart, since a signal asked for the end ("));
  }
}

TEST_F(Restarts, ASignalEndsTheWait) {
  write_job("exit 3\n");
  const Outcome outcome = gradwire_until("starts", "TERM");
  EXPECT_EQ(outcome.status, 3) << outcome.output;
  EXPECT_EQ(starts(), "start 0\n");
  EXPECT_THAT(outcome.output, HasSubstr("no restart, since a signal asked for the end (Terminated)\n"));
}

// Otherwise two jobs would write the same saved state.
TEST_F(Restarts, WhatAFailedRunLeftBehindIsEnded) {
  write_job(
      "[ \"$GRADWIRE_RESTART\" = 1 ] && { kill -0 $(cat left) && exit 4; exit 0; }\n"
      "sleep 20 &\necho $! >left\nexit 3\n");
  const Outcome outcome = gradwire("run --restarts 1 -- ./job.sh");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(starts(), "start 0\nstart 1\n");
}

TEST_F(Restarts, TheReportIsOfTheLastRun) {
  write("written.json", kReport);
  write_job(
      "[ \"$GRADWIRE_RESTART\" = 1 ] && exit 0\ncp written.json \"$(echo $GRADWIRE_REPORT | sed s/%p/7/)\"\nexit 3\n");
  for (const std::string report : {"", "--report kept.json "}) {
    const Outcome outcome = gradwire("run --restarts 1 " + report + "-- ./job.sh");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_THAT(outcome.output, Not(HasSubstr("ratio"))) << "the failed run left this";
    EXPECT_THAT(outcome.output, HasSubstr("warning: no report was written"));
  }
}

TEST_F(Restarts, WhatRanksHadToldIsSaid) {
  std::filesystem::create_directories(folder_ / "left");
  const PlannedJob job;
  write_histories(planned_job(job), folder_ / "left");
  write_job(
      "[ \"$GRADWIRE_RESTART\" = 1 ] && { ls report | grep history && exit 4; exit 0; }\ncp left/* report\nexit 3\n");
  const Outcome outcome = gradwire("run --restarts 1 --report report -- ./job.sh");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, ContainsRegex("at most [0-9.]+m?s; its ranks had told of [1-9][0-9]* steps\n"));
}

TEST_F(Restarts, WrongNumbersAreRefused) {
  for (const std::string number : {"many", "-1", "2x", "1000001"}) {
    const Outcome outcome = gradwire("run --restarts=" + number + " -- true");
    EXPECT_EQ(outcome.status, 2) << number;
    EXPECT_THAT(outcome.output, HasSubstr("--restarts: ")) << number;
    EXPECT_THAT(outcome.output, HasSubstr("write one from 0 to 1000000, such as --restarts 3")) << number;
  }
}

// The second host is this machine too. It answers until the file `down` exists.
class RestartsOnHosts : public Restarts {
 protected:
  void SetUp() override {
    Restarts::SetUp();
    write_script("agent", "for word in \"$@\"; do [ \"$word\" = 127.0.0.2 ] && host=gone; done\n[ -e " +
                              (folder_ / "down").string() + " ] && [ \"$host\" = gone ] && exit 255\nexec " +
                              GRADWIRE_SOURCE_DIR "/tests/cli/agent \"$@\"\n");
    write_script("rank.sh",
                 "echo \"rank ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} of ${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE} in "
                 "start $GRADWIRE_RESTART\"\n[ \"$GRADWIRE_RESTART\" = 0 ] || exit 0\n"
                 "[ \"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" = 1 ] || sleep 20\n: >" +
                     (folder_ / "down").string() + "\nkill -9 $$\n");
  }
  void expect_one_host_less(const std::string& command) const {
    std::filesystem::remove(folder_ / "down");
    const Outcome outcome = gradwire("run --restarts 1 -- " + command + " " + (folder_ / "rank.sh").string());
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("rank 1 of 2 in start 0"));
    EXPECT_THAT(outcome.output, HasSubstr("rank 0 of 1 in start 1"));
    EXPECT_THAT(outcome.output, HasSubstr("; restart 1 of 1 in 1s, on 1 of 2 hosts (without 127.0.0.2, which does not "
                                          "answer), with 1 rank instead of 2; lost is "));
  }
};

TEST_F(RestartsOnHosts, OpenMpiGoesOnWithoutAHostThatIsGone) {
  const std::string launcher = std::string(GRADWIRE_MPIEXEC) + " --mca plm_rsh_agent " + (folder_ / "agent").string();
  expect_one_host_less(launcher + " -H 127.0.0.1:1,127.0.0.2:1 -np 2");
  write("hosts", "# two\n127.0.0.1 slots=1\n127.0.0.2 slots=1 max_slots=1\n");
  expect_one_host_less(launcher + " --hostfile hosts -np 2");
}

TEST_F(RestartsOnHosts, MpichGoesOnWithoutAHostThatIsGone) {
  if (std::string(GRADWIRE_MPICH).empty()) {
    GTEST_SKIP() << "no MPICH here (Debian: mpich)";
  }
  const std::string launcher =
      std::string(GRADWIRE_MPICH) + " -launcher ssh -launcher-exec " + (folder_ / "agent").string();
  expect_one_host_less(launcher + " -hosts 127.0.0.1,127.0.0.2 -n 2");
  write("hosts", "127.0.0.1:1\n127.0.0.2:1\n");
  expect_one_host_less(launcher + " -f hosts -n 2");
}

}  // namespace
}  // namespace gradwire::test
