// Tests gradwire run before scripts, srun and other programs than mpirun, the command line, and signals. Scripts stand
// for the launchers.
#include <gmock/gmock.h>

#include <vector>

#include "cli/report_json.hpp"
#include "cli/tool.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kRank = GRADWIRE_PROBE;

class RunAny : public ToolTest {
 protected:
  void expect_any(const Outcome& outcome) const {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("marked yes"));
    EXPECT_THAT(outcome.output, HasSubstr("[LD_PRELOAD=" + (folder_ / "lib/libgradwire_any.so").string() + "]"));
  }
};

TEST_F(RunAny, AScriptsProgramsInherit) {
  write_script("job.sh", "PMI_RANK=0 " + kRank + "\n");
  for (const std::string& command :
       std::vector<std::string>{"./job.sh", "sh -c 'PMI_RANK=0 " + kRank + "'", "timeout 50 ./job.sh"}) {
    const Outcome outcome = gradwire("run --report out.json --threads multiple -- " + command);
    expect_any(outcome);
    EXPECT_THAT(outcome.output, HasSubstr("[GRADWIRE_REPORT=" + (folder_ / "out.json").string() + "]"));
    EXPECT_THAT(outcome.output, HasSubstr("[GRADWIRE_THREADS=multiple]"));
  }
  const Outcome job = gradwire("run --threads job -- ./job.sh", "GRADWIRE_THREADS=multiple");
  EXPECT_THAT(job.output, HasSubstr("[GRADWIRE_THREADS=job]")) << "the option comes before the variable";
  std::filesystem::remove(folder_ / "lib/libgradwire_any.so");
  const Outcome missing = gradwire("run -- ./job.sh");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.output, HasSubstr("libgradwire_any.so (for jobs of scripts and of srun) is not in"));
}

// Mutation tried: GRADWIRE_DISABLE=1 follows the user's value, which a rank finds first.
TEST_F(RunAny, AComparisonDisablesItsFirstRun) {
  const Outcome outcome = gradwire("run --compare --codec int8 -- " + kRank, "PMI_RANK=0 GRADWIRE_DISABLE=0");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const std::size_t second = outcome.output.find("without gradwire the job took");
  ASSERT_NE(second, std::string::npos) << outcome.output;
  const std::string first = outcome.output.substr(0, second);
  EXPECT_THAT(first, HasSubstr("[GRADWIRE_DISABLE=1]"));
  EXPECT_THAT(first, Not(HasSubstr("[GRADWIRE_DISABLE=0]")));
  EXPECT_THAT(outcome.output.substr(second), HasSubstr("[GRADWIRE_DISABLE=0]"));
}

// The script stands for srun: a rank gets the names in --export from its environment.
TEST_F(RunAny, SrunExportsWhatRanksNeed) {
  write_script(
      "srun",
      "list=\nfor name in $(echo \"${1#--export=}\" | tr , ' '); do list=\"$list $name=$(printenv $name)\"; done\n"
      "shift\nexec env -i $list PMI_RANK=0 \"$@\"\n");
  expect_any(gradwire("run -- ./srun --export=NONE " + kRank));
  const Outcome named = gradwire("run --codec int4 -- ./srun --export=HOME " + kRank, "HOME=/mine");
  expect_any(named);
  EXPECT_THAT(named.output, HasSubstr("[HOME=/mine]"));
  EXPECT_THAT(named.output, HasSubstr("[GRADWIRE_CODEC=int4]"));
}

// The script stands for Open MPI 5's prterun: it accepts -x, and ranks get nothing else.
TEST_F(RunAny, PrterunExportsWhatRanksNeed) {
  write_script(
      "prterun",
      "[ \"$1\" = --version ] && echo 'prterun (PRRTE) 3.0.2' && exit\nlist=\n"
      "while [ \"$1\" = -x ]; do list=\"$list $2\"; shift 2; done\nshift 2\nexec env -i $list PMI_RANK=0 \"$@\"\n");
  const Outcome outcome = gradwire("run --codec int4 -- ./prterun -n 1 " + kRank);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("marked yes"));
  EXPECT_THAT(outcome.output, HasSubstr("[LD_PRELOAD=" + (folder_ / "lib/libgradwire_mpi.so").string() + "]"));
  EXPECT_THAT(outcome.output, HasSubstr("[GRADWIRE_CODEC=int4]"));
}

TEST_F(RunAny, EachJobOfAScriptHasItsReport) {
  std::string second = kReport;
  second.replace(second.find("layer1.weight"), 13, "layer2.weight");
  write("first.json", kReport);
  write("second.json", second);
  write_script("both.sh",
               "cp second.json $(echo \"$GRADWIRE_REPORT\" | sed s/%p/70/)\nsleep 0.1\n"
               "cp first.json $(echo \"$GRADWIRE_REPORT\" | sed s/%p/12/)\n");
  for (const std::string& report : std::vector<std::string>{"", "--report 'kept-%p.json' "}) {
    write("kept-99.json", kReport);  // belongs to an earlier job
    const Outcome outcome = gradwire("run " + report + "-- ./both.sh");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    const std::size_t earlier = outcome.output.find("layer2.weight");
    const std::size_t later = outcome.output.find("layer1.weight");
    EXPECT_NE(later, std::string::npos) << outcome.output;
    EXPECT_LT(earlier, later) << "in the order in which they ended";
    EXPECT_THAT(outcome.output, Not(HasSubstr("no report")));
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "kept-70.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "kept-99.json"));
}

TEST_F(RunAny, TheDashesAreAskedFor) {
  struct Case {
    std::string arguments;
    std::string what;
  };
  for (const Case& c : std::vector<Case>{
           {"run mpirun -np 4 ./job --report x", "write gradwire run -- mpirun -np 4 ./job --report x"},
           {"run --codec int8 --dry-run ./job.sh a", "write gradwire run --codec int8 --dry-run -- ./job.sh a"},
           {"run sh -c 'echo $HOME'", "write gradwire run -- sh -c 'echo $HOME'"},
           {"run mpirun -- ./job 'a b'", "write gradwire run -- mpirun ./job 'a b'"},
           {"run mpirun -- ./job", "-- must stand before the command; write gradwire run -- mpirun ./job"},
           {"run --codek int8 -- ./job", "--codek is no option of gradwire run"},
           {"run --threads some -- ./job", "--threads: some not in {multiple,job}"},
           {"run", "there is no command"},
           {"run --dry-run --", "there is no command"}}) {
    const Outcome outcome = gradwire(c.arguments);
    EXPECT_EQ(outcome.status, 2) << c.arguments;
    EXPECT_THAT(outcome.output, HasSubstr(c.what));
  }
  const Outcome own = gradwire("run -- sh -c 'echo \"$@\"' sh a -- --report b");
  EXPECT_THAT(own.output, HasSubstr("a -- --report b\n")) << "arguments of the command";
}

// A signal goes to gradwire alone, or to all processes, as `timeout` and queues send it: the command gets it once.
TEST_F(RunAny, HandsSignalsOnOnce) {
  write_script("mpirun",
               "[ \"$1\" = --version ] && echo 'mpirun (Open MPI)' && exit\n"
               "trap 'echo got' TERM INT\necho started\n: >ready\n"
               "for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done\ncp written.json $(echo \"$OMPI_MCA_mca_base_env_list\" | "
               "tr ';' '\\n' | sed -n s/GRADWIRE_REPORT=//p)\nexit 9\n");
  write("written.json", kReport);
  const std::string wait = " for i in $(seq 300); do [ -e ready ] && break; sleep 0.1; done; ";
  const std::string start = "cd '" + folder_.string() + "' && rm -f ready && ";
  for (const std::string& send : std::vector<std::string>{
           start + "{ bin/gradwire run -- ./mpirun & } && pid=$!;" + wait + "kill -TERM $pid && wait $pid",
           start + "timeout -s INT 0.6 bin/gradwire run -- ./mpirun",
           start + "timeout 0.6 bin/gradwire run -- ./mpirun"}) {
    const Outcome outcome = run_program(send);
    EXPECT_THAT(outcome.output, HasSubstr("got\n"));
    EXPECT_EQ(outcome.output.find("got"), outcome.output.rfind("got")) << send << '\n' << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("ratio: 3.974")) << "no table";
    EXPECT_EQ(outcome.status, send.find("timeout") == std::string::npos ? 9 : 124);
  }
}

// Other signals do not ask for an end: a queue sends them some time before, and the job goes on.
TEST_F(RunAny, HandsOnWhatAQueueSendsBefore) {
  for (const std::string signal : {"USR1", "USR2", "XCPU"}) {
    write_script("job.sh",
                 "trap 'echo saved; exit 5' " + signal + "\n: >ready\nfor i in $(seq 300); do sleep 0.1; done\n");
    const Outcome outcome = run_program("cd '" + folder_.string() +
                                        "' && rm -f ready && { timeout -k 1 40 bin/gradwire run -- ./job.sh & } && "
                                        "pid=$!; for i in $(seq 300); do [ -e ready ] "
                                        "&& break; sleep 0.1; done; kill -" +
                                        signal + " $(pgrep -P $pid) && wait $pid");
    EXPECT_EQ(outcome.status, 5) << signal;
    EXPECT_THAT(outcome.output, HasSubstr("saved"));
  }
}

// Mutation tried: the signal stays ignored; then the run never ends.
TEST_F(RunAny, SeesTheEndWhereSignalsOfChildrenAreIgnored) {
  const Outcome outcome = run_program(
      "cd '" + folder_.string() + "' && timeout -k 1 20 env --ignore-signal=CHLD bin/gradwire run -- sh -c 'exit 6'");
  EXPECT_EQ(outcome.status, 6) << outcome.output;
}

TEST_F(RunAny, TellsWhatIsWrongWithAScript) {
  write("closed.sh", "#!/bin/sh\n");
  EXPECT_THAT(gradwire("run -- ./closed.sh").output, HasSubstr("./closed.sh may not be executed; chmod +x"));
  write("bare.sh", "echo hello\n");
  std::filesystem::permissions(folder_ / "bare.sh", std::filesystem::perms::owner_all);
  EXPECT_THAT(gradwire("run -- ./bare.sh").output, HasSubstr("a script begins with the line #!/bin/sh"));
  EXPECT_THAT(gradwire("run --report '' -- true").output, HasSubstr("--report has an empty name"));
  const auto why = [&](const std::string& command) { return gradwire("run -- " + command).output; };
  EXPECT_THAT(why("true"), HasSubstr("the job is no MPI job: /"));
  EXPECT_THAT(why("sh -c true"),
              HasSubstr("no process called MPI_Init with gradwire preloaded: what was started is no"));
  EXPECT_THAT(why("sh -c 'env -i true'"), HasSubstr("env -i starts what comes after it without LD_PRELOAD"));
  write_script("sudo", "true\n");
  write_script("batch.sh", "# ssh\n./sudo true\n");
  EXPECT_THAT(why("./batch.sh"), HasSubstr("put gradwire run behind sudo, before mpirun"));
  EXPECT_THAT(why("env -i true"), HasSubstr("env -i starts"));
}

// A shell ends at once on a signal, while the program that it started still runs.
TEST_F(RunAny, WaitsForWhatAScriptLeftBehind) {
  write("written.json", kReport);
  write_script("launcher",
               "trap 'sleep 0.3; cp written.json $(echo \"$GRADWIRE_REPORT\" | sed s/%p/1/); exit' TERM\n: >ready\n"
               "for i in $(seq 300); do sleep 0.1; done\n");
  write_script("job.sh", "./launcher\necho not reached\n");
  const Outcome outcome =
      run_program("cd '" + folder_.string() +
                  "' && { bin/gradwire run -- ./job.sh & } && pid=$!; for i in $(seq 300); do [ -e ready ] "
                  "&& break; sleep 0.1; done; kill -TERM $pid && wait $pid");
  EXPECT_EQ(outcome.status, 128 + 15);
  EXPECT_THAT(outcome.output, HasSubstr("ratio: 3.974"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("not reached")));
}

}  // namespace
}  // namespace gradwire::test
