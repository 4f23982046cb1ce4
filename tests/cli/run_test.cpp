// Tests gradwire run: what every rank receives, on other hosts too, what is refused before the start, and the end of a
// job.
#include <gmock/gmock.h>

#include <vector>

#include "cli/report_json.hpp"
#include "cli/tool.hpp"

namespace gradwire::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kProbe = GRADWIRE_PROBE;
const std::string kOpenMpi = std::string(GRADWIRE_MPIEXEC) + " --oversubscribe ";
// The second host is this machine too, but its ranks are started through the agent.
const std::string kAgent = GRADWIRE_SOURCE_DIR "/tests/cli/agent";
const std::string kTwoHosts =
    std::string(GRADWIRE_MPIEXEC) + " --mca plm_rsh_agent " + kAgent + " -H 127.0.0.1:1,127.0.0.2:1 -np 2 ";
const std::string kMpich = GRADWIRE_MPICH;
const std::string kMpichTwoHosts =
    kMpich + " -launcher ssh -launcher-exec " + kAgent + " -genvnone -hosts 127.0.0.1,127.0.0.2 -n 2 ";

class Run : public ToolTest {
 protected:
  /// Returns the output line of a rank of the probe.
  static std::string rank_line(const Outcome& outcome, int rank) {
    const std::string head = "rank " + std::to_string(rank) + " marked ";
    const std::size_t begin = outcome.output.find(head);
    EXPECT_NE(begin, std::string::npos) << "no rank " << rank << " in:\n" << outcome.output;
    return begin == std::string::npos ? "" : outcome.output.substr(begin, outcome.output.find('\n', begin) - begin);
  }

  void expect_everything(const std::string& line, const std::string& library) const {
    EXPECT_THAT(line, HasSubstr("marked yes"));
    EXPECT_THAT(line, HasSubstr("[LD_PRELOAD=" + (folder_ / "lib" / library).string() + "]"));
    EXPECT_THAT(line, HasSubstr("[GRADWIRE_POLICY=" + (folder_ / "policy.toml").string() + "]"));
    EXPECT_THAT(line, HasSubstr("[GRADWIRE_REPORT=" + (folder_ / "out.json").string() + "]"));
    EXPECT_THAT(line, HasSubstr("[GRADWIRE_DRY_RUN=1]"));
    EXPECT_THAT(line, HasSubstr("[GRADWIRE_TIMEOUT=7s]"));
    EXPECT_THAT(line, Not(HasSubstr("GRADWIRE_DISABLE")));
  }

  const std::string policy_ = "version = 1\n";
};

TEST_F(Run, OpenMpiRanksOnOtherHostsGetEverything) {
  write("policy.toml", policy_);
  const std::string options = "run --policy policy.toml --report out.json --dry-run -- ";
  const Outcome outcome = gradwire(options + kTwoHosts + kProbe, "GRADWIRE_TIMEOUT=7s");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (int rank = 0; rank < 2; ++rank) {
    expect_everything(rank_line(outcome, rank), "libgradwire_mpi.so");
  }
  EXPECT_THAT(rank_line(outcome, 1), HasSubstr("[HOME=/from-the-agent]"))
      << "it did not start from an empty environment";
  const auto job = [](const std::string& line) {
    const std::size_t at = line.find("[GRADWIRE_JOB=");
    return at == std::string::npos ? "" : line.substr(at, line.find(']', at) - at);
  };
  EXPECT_THAT(job(rank_line(outcome, 0)), ::testing::MatchesRegex(".*-[0-9]{8}-[0-9]{6}-[0-9]+"));
  EXPECT_EQ(job(rank_line(outcome, 1)), job(rank_line(outcome, 0))) << "all ranks have one name of the job";
}

// The command exports its own variables by -x, for two programs.
TEST_F(Run, OpenMpiExportsGoBesideTheUsersOwn) {
  if (run_program(root_variables() + " " + kOpenMpi + "-np 1 true : -np 1 true").status != 0) {
    GTEST_SKIP() << "this mpirun cannot start several programs (-np 1 a : -np 1 b)";  // 5.0 of Debian 13
  }
  write("policy.toml", policy_);
  const std::string two_hosts = kTwoHosts + "-x USERS_OWN ";
  const std::string both =
      two_hosts.substr(0, two_hosts.find("-np 2")) + "-x USERS_OWN -np 1 " + kProbe + " : -np 1 " + kProbe;
  const Outcome outcome = gradwire("run --policy policy.toml --report out.json --dry-run -- " + both,
                                   "GRADWIRE_TIMEOUT=7s USERS_OWN=there");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(rank_line(outcome, 0), HasSubstr("[USERS_OWN=there]"));
  for (int rank = 0; rank < 2; ++rank) {
    expect_everything(rank_line(outcome, rank), "libgradwire_mpi.so");
  }
}

TEST_F(Run, MpichRanksOnOtherHostsGetEverything) {
  if (kMpich.empty()) {
    GTEST_SKIP() << "no MPICH here (Debian: mpich)";
  }
  write("policy.toml", policy_);
  const Outcome outcome = gradwire("run --policy policy.toml --report out.json --dry-run -- " + kMpichTwoHosts + kProbe,
                                   "GRADWIRE_TIMEOUT=7s");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (int rank = 0; rank < 2; ++rank) {
    expect_everything(rank_line(outcome, rank), "libgradwire_mpich.so");
  }
}

// The marker stands for gradwire in front of the sanitizer's library.
TEST_F(Run, AJobWithAddressSanitizerIsToldWhatHelps) {
  const std::string job = (folder_ / "sanitized").string();
  write("sanitized.c", "int main(void) { return 0; }\n");
  if (run_program("cc -fsanitize=address '" + job + ".c' -o '" + job + "' && '" + job + "'").status != 0 ||
      run_program("readelf -d '" + job + "' | grep -q 'libasan[.]so'").status != 0) {
    GTEST_SKIP() << "cc makes no program with libasan.so here";
  }
  const Outcome refused = gradwire("run -- " + kOpenMpi + "-np 1 " + job);
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("is built with AddressSanitizer"));
  EXPECT_THAT(refused.output, HasSubstr("set ASAN_OPTIONS=verify_asan_link_order=0 in the environment"));
  const Outcome started = gradwire("run -- " + kOpenMpi + "-np 1 " + job, "ASAN_OPTIONS=verify_asan_link_order=0");
  EXPECT_EQ(started.status, 0) << started.output;
}

// Variables that the user's file gives to ranks are kept.
TEST_F(Run, KeepsTheEnvironmentOfAFileOfOpenMpi) {
  std::filesystem::create_directories(folder_ / "home/.openmpi");
  write("home/.openmpi/mca-params.conf", "mca_base_env_list = USERS_OWN=there\n");
  const Outcome outcome =
      gradwire("run -- " + kOpenMpi + "-np 1 " + kProbe, "HOME='" + (folder_ / "home").string() + "'");
  EXPECT_THAT(rank_line(outcome, 0), HasSubstr("marked yes"));
  EXPECT_THAT(rank_line(outcome, 0), HasSubstr("[USERS_OWN=there]"));
}

TEST_F(Run, KeepsThePreloadsOfTheUser) {
  const std::string other = "/lib/x86_64-linux-gnu/libm.so.6";
  if (!std::filesystem::exists(other)) {
    GTEST_SKIP() << other << " is not here";
  }
  const Outcome outcome = gradwire("run -- " + kOpenMpi + "-np 1 " + kProbe, "LD_PRELOAD=" + other);
  EXPECT_THAT(rank_line(outcome, 0),
              HasSubstr("[LD_PRELOAD=" + (folder_ / "lib/libgradwire_mpi.so").string() + ":" + other + "]"));
}

TEST_F(Run, PrintsTheTableAndPassesTheStatusOn) {
  const std::string report = write("written.json", kReport);
  const Outcome outcome = gradwire("run -- " + kOpenMpi + "-np 2 " + kProbe + " " + report);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("layer1.weight"));
  EXPECT_THAT(outcome.output, HasSubstr("ratio: 3.974 on compressed calls, 3.972 over all"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("warning")));
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("gradwire-report"))) << "the report was not removed";
  }
  const Outcome failed = gradwire("run --report kept.json -- " + kOpenMpi + "-np 1 " + kProbe + " " + report + " 3");
  EXPECT_EQ(failed.status, 3);
  EXPECT_THAT(failed.output, HasSubstr("ratio: 3.974"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "kept.json"));
  // An old report does not belong to this job.
  const Outcome none = gradwire("run --report kept.json -- " + kOpenMpi + "-np 1 " + kProbe + " '' 3");
  EXPECT_EQ(none.status, 3);
  EXPECT_THAT(none.output, HasSubstr("the job ended with status 3 before it wrote a report"));
  EXPECT_THAT(none.output, Not(HasSubstr("ratio")));
}

TEST_F(Run, WarnsWhereNothingWasHandled) {
  const Outcome nothing = gradwire("run -- " + kOpenMpi + "-np 1 " + kProbe);
  EXPECT_EQ(nothing.status, 0);
  EXPECT_THAT(nothing.output, HasSubstr("warning: no report was written"));
  EXPECT_THAT(nothing.output, Not(HasSubstr("can be preloaded")));

  const Outcome fixed = gradwire("run -- " + kOpenMpi + "-np 1 " + GRADWIRE_STATIC_PROBE);
  EXPECT_EQ(fixed.status, 0);
  EXPECT_THAT(fixed.output, HasSubstr("warning: " GRADWIRE_STATIC_PROBE " is statically linked"));

  const std::string none = write("none.json", R"({ "gradwire": "0.1.0", "world": 1, "library": "Open MPI 4.1.4",
    "dry_run": false, "policy": "built-in", "disabled": null, "classes": [], "totals": { "calls": 0,
    "compressed_calls": 0, "bytes_in": 0, "bytes_dense": 0, "bytes_sent": 0, "ratio": 1, "ratio_compressed": 1 } })");
  EXPECT_THAT(gradwire("run -- " + kOpenMpi + "-np 1 " + kProbe + " " + none).output,
              HasSubstr("warning: the job called no function that gradwire handles"));
  const std::string session = write("session.json", R"({ "gradwire": "0.1.0", "world": 2, "library": "Open MPI 4.1.4",
    "dry_run": false, "policy": "int8", "disabled": null, "has_session": true, "classes": [], "totals": { "calls": 0,
    "compressed_calls": 0, "bytes_in": 0, "bytes_dense": 0, "bytes_sent": 0, "ratio": 1, "ratio_compressed": 1 } })");
  const Outcome of_session = gradwire("run --codec int8 -- " + kOpenMpi + "-np 1 " + kProbe + " " + session);
  EXPECT_THAT(of_session.output, HasSubstr("the job has a session of its own, whose messages are not in the table"));
  EXPECT_THAT(of_session.output, Not(HasSubstr("warning")));
  const std::string broken = write("broken.json", "{");
  const Outcome unreadable = gradwire("run -- " + kOpenMpi + "-np 1 " + kProbe + " " + broken);
  EXPECT_EQ(unreadable.status, 0) << "the job's status, whatever its report";
  EXPECT_THAT(unreadable.output, HasSubstr("is no report of gradwire"));
}

// The path may be relative here. The key itself never leaves its file.
TEST_F(Run, ThePathOfAKeyReachesTheRanks) {
  std::filesystem::permissions(write("job.key", std::string(32, 'k')), std::filesystem::perms::owner_read);
  const Outcome outcome = gradwire("run --codec int4 -- " + kOpenMpi + "-np 1 " + kProbe, "GRADWIRE_KEY=file:job.key");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(rank_line(outcome, 0), HasSubstr("[GRADWIRE_KEY=file:" + (folder_ / "job.key").string() + "]"));
  EXPECT_THAT(outcome.output, Not(HasSubstr(std::string(32, 'k'))));
}

TEST_F(Run, ACodecReachesTheRanks) {
  const Outcome named = gradwire("run --codec int4 -- " + kOpenMpi + "-np 1 " + kProbe, "GRADWIRE_CHOICES=some/file");
  EXPECT_EQ(named.status, 0) << named.output;
  EXPECT_THAT(rank_line(named, 0), HasSubstr("[GRADWIRE_CODEC=int4]"));
  EXPECT_THAT(rank_line(named, 0), HasSubstr("[GRADWIRE_CHOICES=" + (folder_ / "some/file").string() + "]"));
  EXPECT_THAT(rank_line(named, 0), ContainsRegex("\\[GRADWIRE_REGISTER=[0-9a-f]+@[0-9a-f]+@gradwire-"));
  const Outcome none =
      gradwire("run --no-feedback --f64 --max-error 1% --no-register -- " + kOpenMpi + "-np 1 " + kProbe,
               "GRADWIRE_REGISTER=of-an-outer-run");
  EXPECT_THAT(rank_line(none, 0), Not(HasSubstr("GRADWIRE_CODEC")));
  EXPECT_THAT(rank_line(none, 0), HasSubstr("[GRADWIRE_ERROR_FEEDBACK=off]"));
  EXPECT_THAT(rank_line(none, 0), HasSubstr("[GRADWIRE_F64=1]"));
  EXPECT_THAT(rank_line(none, 0), HasSubstr("[GRADWIRE_MAX_ERROR=1%]"));
  EXPECT_THAT(rank_line(none, 0), HasSubstr("[GRADWIRE_REGISTER=]")) << "ranks would reach another gradwire run";
}

TEST_F(Run, ARecordingReachesTheRanks) {
  const Outcome named =
      gradwire("run --record-gradients some/folder --steps 7 -- " + kOpenMpi + "-np 1 " + kProbe, "GRADWIRE_LOG=info");
  EXPECT_EQ(named.status, 0) << named.output;
  const std::string folder = (folder_ / "some/folder").string();
  EXPECT_THAT(rank_line(named, 0), HasSubstr("[GRADWIRE_RECORD_GRADIENTS=" + folder + ":steps=7]"));
  const Outcome usual = gradwire("run --record-gradients some/folder -- " + kOpenMpi + "-np 1 " + kProbe);
  EXPECT_THAT(rank_line(usual, 0), HasSubstr("[GRADWIRE_RECORD_GRADIENTS=" + folder + ":steps=5]"));
}

// The files reach ranks on other hosts too, whose folder differs.
TEST_F(Run, JoinFilesReachTheRanks) {
  const Outcome let = gradwire("run --let-join join -- " + kTwoHosts + kProbe);
  EXPECT_EQ(let.status, 0) << let.output;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(rank_line(let, rank), HasSubstr("[GRADWIRE_LET_JOIN=" + (folder_ / "join").string() + "]"));
    EXPECT_THAT(rank_line(let, rank), Not(HasSubstr("GRADWIRE_JOIN")));
  }
  write("join", "");
  const Outcome join = gradwire("run --join ./join -- " + kProbe + " '' 5");
  EXPECT_EQ(join.status, 5);
  EXPECT_THAT(join.output, HasSubstr("[GRADWIRE_JOIN=" + (folder_ / "join").string() + "]"));
  EXPECT_THAT(join.output, Not(HasSubstr("no report was written"))) << "there is no report to write";
  EXPECT_THAT(join.output, Not(HasSubstr("gradwire: ")));
}

TEST_F(Run, RefusesBeforeAnythingStarts) {
  write("bad.toml", "codec = 1\n");
  write_script("mpiexec", "echo Launcher of nobody 3\n");
  const std::string job = kOpenMpi + "-np 1 " + kProbe;
  struct Case {
    std::string arguments;
    std::string variables;
    int status;
    std::string what;
  };
  for (const Case& c : std::vector<Case>{
           {"run --policy bad.toml -- " + job, "", 2, "bad.toml:1:1: unknown key \"codec\" at the top of the file"},
           {"run -- " + job, "GRADWIRE_POLICY=bad.toml", 2, "bad.toml:1:1: "},
           {"run --codec int9 -- " + job, "", 2, "--codec: codec \"int9\": write one of"},
           {"run -- " + job, "GRADWIRE_CODEC=int9", 2, "GRADWIRE_CODEC: codec \"int9\": write one of"},
           {"run --codec int8 --policy bad.toml -- " + job, "", 2, "--codec and --policy are both given"},
           {"run --codec int8 -- " + job, "GRADWIRE_POLICY=bad.toml", 2, "--codec and GRADWIRE_POLICY are both given"},
           {"run -- " + job, "GRADWIRE_POLICY=bad.toml GRADWIRE_CODEC=int8", 2, "GRADWIRE_CODEC and GRADWIRE_POLICY"},
           {"run --policy none.toml -- " + job, "", 2, "none.toml: cannot be read"},
           {"run --no-feedback --policy bad.toml -- " + job, "", 2,
            "--no-feedback and --policy are both given; write error_feedback = \"off\" in the policy"},
           {"run --f64 -- " + job, "GRADWIRE_POLICY=bad.toml", 2,
            "--f64 and GRADWIRE_POLICY are both given; write a rule with dtype = \"f64\" in the policy"},
           {"run --policy bad.toml -- " + job, "GRADWIRE_MAX_ERROR=1%", 2,
            "GRADWIRE_MAX_ERROR and --policy are both given; write max_error in the policy"},
           {"run --max-error 2 -- " + job, "", 2, "--max-error: bad share \"2\""},
           {"run --max-error 100% -- " + job, "", 2, "--max-error: 100% bounds nothing; write a share of the sum"},
           {"run -- " + job, "GRADWIRE_ERROR_FEEDBACK=no", 2, "GRADWIRE_ERROR_FEEDBACK is \"no\"; write one of"},
           {"run --let-join a --join bad.toml -- " + job, "", 2, "--let-join and --join are both given"},
           {"run --join bad.toml -- " + job, "GRADWIRE_LET_JOIN=a", 2, "GRADWIRE_LET_JOIN and --join are both given"},
           {"run --let-join no/such/join -- " + job, "", 2, "no/such is no folder; make it, or name another file"},
           {"run --let-join . -- " + job, "", 2, "it is a folder; write the name of a file in it"},
           {"run --let-join bad.toml -- " + job, "", 2, "bad.toml is there, and is no join file of gradwire"},
           {"run --restarts 2 --let-join a -- " + job, "", 2,
            "--restarts and --let-join are both given: processes that"},
           {"run --restarts 2 -- " + job, "GRADWIRE_LET_JOIN=a", 2, "--restarts and GRADWIRE_LET_JOIN are both given"},
           {"run --join none -- " + job, "", 2, "none is not there; a job writes it that was started with gradwire"},
           {"run --steps 3 -- " + job, "", 2, "write --record-gradients DIRECTORY, too"},
           {"run --record-gradients g --steps 0 -- " + job, "", 2, "--steps 0: write a number from 1 to 512"},
           {"run --record-gradients bad.toml -- " + job, "", 2, "bad.toml: it is a file; name a directory"},
           {"run --report no/such/folder/r.json -- " + job, "", 2, "r.json cannot be written"},
           {"run -- " + job, "GRADWIRE_DISABLE=yes", 2, "GRADWIRE_DISABLE is \"yes\"; write one of 0 | 1"},
           {"run -- " + job, "GRADWIRE_TIMEOUT=soon", 2, "GRADWIRE_TIMEOUT"},
           {"run -- bin/gradwire run -- " + job, "", 2, "gradwire run stands in the command again; write it once"},
           {"run -- ./mpiexec -np 1 " + kProbe, "", 2,
            "mpiexec is of neither Open MPI nor MPICH: --version says \"Launcher of nobody 3\"; write the path of the "
            "mpirun of one of them"},
           {"run -- ./mpiexec -np 1 " + kProbe, "", 2, "gradwire run -- sh -c './mpiexec ...'"},
           {"run -- sbatch job.sh", "", 2, "sbatch returns before the job runs; put gradwire run inside"},
           {"run -- ./mpirun -np 1 " + kProbe, "", 127, "./mpirun was not found; write the path"},
           {"run -- mpirun-of-nobody -np 1 " + kProbe, "", 127, "mpirun-of-nobody was not found in PATH"},
           {"run -- " + kOpenMpi + "-x LD_PRELOAD -np 1 " + kProbe, "", 2, "the command sets LD_PRELOAD"}}) {
    const Outcome outcome = gradwire(c.arguments, c.variables);
    EXPECT_EQ(outcome.status, c.status) << c.arguments << '\n' << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("gradwire: "));
    EXPECT_THAT(outcome.output, HasSubstr(c.what));
    EXPECT_THAT(outcome.output, Not(HasSubstr("rank 0 marked"))) << "the job was started";
  }
  std::filesystem::remove(folder_ / "lib/libgradwire_mpi.so");
  const Outcome missing = gradwire("run -- " + job);
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.output, ContainsRegex("libgradwire_mpi.so \\(for jobs of Open MPI\\) is not in .*/lib"));
}

TEST_F(Run, RefusesAPathThatLdPreloadCannotName) {
  for (const std::string name : {"a folder", "a:folder"}) {
    const std::filesystem::path prefix = folder_ / name;
    std::filesystem::create_directories(prefix);
    std::filesystem::copy(folder_ / "bin", prefix / "bin");
    std::filesystem::copy(folder_ / "lib", prefix / "lib");
    const Outcome outcome = run_program("cd '" + prefix.string() + "' && " + root_variables() +
                                        " timeout 60 bin/gradwire run -- " + kOpenMpi + "-np 1 " + kProbe);
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(name + "/lib/libgradwire_mpi.so cannot be preloaded"));
    EXPECT_THAT(outcome.output, Not(HasSubstr("rank 0 marked")));
  }
}

TEST_F(Run, RefusesAJobOfAnotherMpi) {
  const Outcome outcome = gradwire(std::string("run -- ") + kOpenMpi + "-np 1 " + GRADWIRE_MPICH_PROBE);
  EXPECT_EQ(outcome.status, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("cli_probe_mpich is linked with MPICH, but " GRADWIRE_MPIEXEC
                                        " is of Open MPI; start the job with the mpirun of MPICH"));
}

// Tests a run whose output is not read to its end, and a run in a folder where nothing can be written.
TEST_F(Run, LeavesNothingBehind) {
  const std::string report = write("written.json", kReport);
  std::filesystem::create_directories(folder_ / "tmp");
  const std::string run = "TMPDIR='" + (folder_ / "tmp").string() + "' " + root_variables() + " timeout 60 '" +
                          (folder_ / "bin/gradwire").string() + "' run -- " + kOpenMpi + "-np 1 " + kProbe + " '" +
                          report + "'";
  for (const std::string& command :
       {"cd '" + folder_.string() + "' && { " + run + "; } 2>&1 | head -c 1", "cd /proc && " + run}) {
    const Outcome outcome = run_program(command);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "tmp")) {
      EXPECT_THAT(entry.path().filename().string(), Not(::testing::StartsWith("gradwire"))) << command;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("report-"))) << command;
    }
    if (command.starts_with("cd /proc")) {
      EXPECT_THAT(outcome.output, HasSubstr("ratio: 3.974")) << "the table is lost";
    }
  }
  // SIGKILL leaves the folder. The next run removes it, but no folder of a run that still goes on.
  const std::string busy = "cd '" + folder_.string() + "' && export TMPDIR=\"$PWD/tmp\" && ls tmp >/dev/null && ";
  const Outcome killed = run_program(
      busy +
      "{ bin/gradwire run -- sleep 30 & } && pid=$!; for i in $(seq 300); do [ -e tmp/gradwire-*/.lock ] && break; "
      "sleep 0.1; done; bin/gradwire run -- true 2>/dev/null; ls -d tmp/gradwire-* | wc -l; sleeper=$(pgrep -P $pid "
      "-x sleep); kill -KILL $pid; wait $pid 2>/dev/null; kill $sleeper; ls -d tmp/gradwire-* | wc -l; "
      "bin/gradwire run -- true 2>/dev/null; ls tmp | grep -c gradwire");
  EXPECT_THAT(killed.output, ::testing::EndsWith("1\n1\n0\n"));
  const Outcome nowhere = gradwire("run -- " + kOpenMpi + "-np 1 " + kProbe, "TMPDIR=/proc/none");
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.output, HasSubstr("no temporary folder can be made in /proc/none"));
}

}  // namespace
}  // namespace gradwire::test
