// Tests gradwire check, gradwire info, and the command line.
#include <gmock/gmock.h>

#include "base/environment.hpp"
#include "base/read_file.hpp"
#include "cli/tool.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/version.hpp"
#include "tests/support/committed_file.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Tool : public ToolTest {};

TEST_F(Tool, CheckExplainsAPolicy) {
  write("policy.toml", R"(floor = "1MiB"
[[rule]]
match = "*.bias"
codec = "exact"
[[rule]]
order = [0, 7]
communicator_size = 4
codec = "topk(1%)+int8"
warmup = [ { until_step = 100, codec = "int8" } ]
)");
  const Outcome outcome = gradwire("check policy.toml --ranks 2");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("policy.toml: no mistakes"));
  EXPECT_THAT(outcome.output, ContainsRegex("1 +2 +\\*\\.bias +exact +auto +1\n"));
  EXPECT_THAT(outcome.output,
              ContainsRegex("2 +5 +calls 0 to 7, communicator of 4 +int8, error feedback, until step 100; then "
                            "topk\\(41/4096\\)\\+int8, second hop topk\\(82/4096\\)\\+int8, error feedback +auto"));
  EXPECT_THAT(outcome.output, ContainsRegex("default +all others +int8 +auto +3\\.9"));
  EXPECT_THAT(outcome.output, HasSubstr("below 1MiB they pass through uncompressed"));
  EXPECT_THAT(outcome.output, HasSubstr("note: rule 1 of policy.toml with `match`: ignored where calls have no names"));
}

TEST_F(Tool, CheckTellsWhichAlgorithmSizesTake) {
  write("policy.toml",
        "[tier]\nranks_per_node = 2\n[[rule]]\nmatch = \"a\"\ncodec = \"exact\"\n"
        "[[rule]]\nmatch = \"b\"\nalgorithm = \"two_shot\"\n");
  const std::string output = gradwire("check policy.toml --ranks 4").output;
  EXPECT_THAT(output, HasSubstr("algorithm of rule 1, 2 nodes of 2 ranks: dense up to 32KiB, hierarchical above\n"));
  EXPECT_THAT(output,
              ContainsRegex("algorithm of all others, 2 nodes of 2 ranks: one_shot up to [0-9]+KiB, two_shot up "
                            "to [0-9]+KiB, hierarchical above\n"));
  EXPECT_THAT(output, Not(HasSubstr("algorithm of rule 2")));
  write("policy.toml", "");
  EXPECT_THAT(gradwire("check policy.toml --ranks 4").output,
              ContainsRegex("algorithm of all others, where each node has one rank: one_shot up to [0-9]+KiB, two_shot "
                            "above\n"));
}

TEST_F(Tool, CheckTellsTheCodecOfEachTier) {
  write("policy.toml",
        "[defaults]\nalgorithm = \"hierarchical\"\nsmall = \"off\"\n[tier]\nranks_per_node = 8\n[tier.intra]\ncodec = "
        "\"fp16\"\n");
  const Outcome outcome = gradwire("check policy.toml --ranks 16");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, ContainsRegex("all others +int8, intra fp16 +hierarchical"));
  EXPECT_THAT(outcome.output, HasSubstr("tiers: 8 ranks in a row share a node\n"));
  EXPECT_THAT(outcome.output,
              HasSubstr("note: ranks_per_node of policy.toml: ignored where calls come on any communicator"));
  EXPECT_THAT(outcome.output,
              HasSubstr("note: the algorithm hierarchical of policy.toml: two_shot over device memory"));
  EXPECT_THAT(gradwire("check policy.toml --ranks 12").output, HasSubstr("a session of 12 ranks refuses that"));
}

TEST_F(Tool, CheckTellsWhatAutoMayChoose) {
  write("policy.toml", "[defaults]\ncodec = \"auto\"\nallow = [\"int8\", \"int4\"]\n");
  const Outcome outcome = gradwire("check policy.toml");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              ContainsRegex("all others +auto: dense; int8; int4, error feedback +auto +up to 7\\.88\n"));
  EXPECT_THAT(outcome.output, ContainsRegex("in a session +auto: dense; bf16 +auto +up to 2\n"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("refuses")));
}

TEST_F(Tool, CheckTellsSyncModes) {
  write("policy.toml",
        "[defaults]\nsync = { every = 8 }\n[[rule]]\nmatch = \"embed\"\nsync = { async = true, staleness = 4 }\n");
  const Outcome outcome = gradwire("check policy.toml");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("sync of rule 1: async, staleness 4\nsync of all others: every 8\n"));
  EXPECT_THAT(outcome.output, HasSubstr("note: for sessions only: policy policy.toml: sync other than \"step\""));
}

TEST_F(Tool, CheckTellsRolesAndMemory) {
  write("policy.toml",
        "[memory]\ndevice_residuals = \"1GiB\"\n[defaults]\nroles = \"all\"\n[[rule]]\ncommunicator_name = \"tp*\"\n"
        "roles = \"gradients\"\n");
  const std::string output = gradwire("check policy.toml").output;
  EXPECT_THAT(output, HasSubstr("communicator tp*"));
  EXPECT_THAT(output, HasSubstr("roles of rule 1: calls of NCCL pass until they are known to be gradients\n"
                                "roles of all others: all calls of NCCL count as gradients, at once\n"
                                "memory: a drop-in keeps up to 1GiB of residuals on a device for each communicator\n"));
  EXPECT_THAT(output, HasSubstr("note: rule 1 of policy.toml with `communicator_name`: ignored but by"));
}

TEST_F(Tool, CheckTellsWhatElasticSays) {
  write("policy.toml", "[elastic]\nmin_ranks = 2\nspares = 1\nreplicate = \"10 steps\"\nexpel_slower_than = 3\n");
  EXPECT_THAT(
      gradwire("check policy.toml").output,
      HasSubstr("elastic, for sessions that go on when ranks end: a silent rank is left out after 5s; the job ends "
                "with fewer than 2 ranks; spares: 1; residuals are copied every 10 steps, as bf16 (lossy); a rank "
                "that makes steps 3 times as long must leave\n"));
  write("policy.toml", "");
  EXPECT_THAT(gradwire("check policy.toml").output, Not(HasSubstr("elastic")));
}

TEST_F(Tool, CheckTellsWhatADeviceGives) {
  write("policy.toml", "[device]\nblocks = 64\npriority = \"normal\"\njoin = \"8MiB\"\n");
  EXPECT_THAT(
      gradwire("check policy.toml").output,
      HasSubstr("device: kernels have at most 64 blocks of 256 threads, and normal priority; buckets below 8MiB are "
                "made together\n"));
  write("policy.toml", "");
  EXPECT_THAT(gradwire("check policy.toml").output, Not(HasSubstr("device: ")));
}

TEST_F(Tool, CheckNamesThePlaceOfAMistake) {
  write("policy.toml", "version = 1\n[[rule]]\nmatch = \"*.bias\"\ncodec = \"int9\"\n");
  const Outcome outcome = gradwire("check policy.toml");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("gradwire: policy.toml:4:9: codec \"int9\": write one of exact"));
  const Outcome missing = gradwire("check missing.toml");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.output, HasSubstr("missing.toml: cannot be read (No such file or directory)"));
}

TEST_F(Tool, NamesACommandThatIsMissingOrMisspelt) {
  for (const auto& [arguments, what] : std::vector<std::pair<std::string, std::string>>{
           {"",
            "gradwire: a command is missing; write one of check, info, plan, ratio, run, report, doctor, top, trace, "
            "key, completion, or gradwire --help"},
           {"chek policy.toml", "gradwire: \"chek\" is no command of gradwire; did you mean gradwire check?"},
           {"help", "gradwire: \"help\" is no command of gradwire; write one of check, info, plan"},
           {"--codec int8 run -- true", "gradwire: --codec is no option of gradwire; gradwire --help lists them"}}) {
    const Outcome outcome = gradwire(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.output, HasSubstr(what));
  }
  EXPECT_THAT(gradwire("run --help").output, HasSubstr("Usage: gradwire run [OPTIONS] -- COMMAND...\n"));
}

TEST_F(Tool, CheckSaysThatATopkKeepsEverything) {
  write("policy.toml", "[[rule]]\nmatch = \"embed\"\ncodec = \"topk(1)+int8\"\n");
  EXPECT_THAT(gradwire("check policy.toml").output,
              HasSubstr("note: rule 1 of policy.toml: topk(4096/4096)+int8 keeps every element"));
}

TEST_F(Tool, PlanPredictsAndAdvisesAtEachScale) {
  write("model.toml", R"(version = 1
compute = "100ms"
[[layer]]
name = "block.#.weight"
shape = [2048, 2048]
repeat = 12
)");
  const std::string call = "plan --layers model.toml --codec-rate 10GB/s --ranks 2,64 ";
  const Outcome slow = gradwire(call + "--link 1Gbit/s --latency 10us --svg plan.svg");
  EXPECT_EQ(slow.status, 0) << slow.output;
  EXPECT_THAT(slow.output, HasSubstr("12 layers, 50.33 million elements"));
  EXPECT_THAT(slow.output, ContainsRegex("64 +exact +dense .* 1 +378MiB"));
  EXPECT_THAT(slow.output, ContainsRegex("64 +int8 .* \\+0\\.05% *\n"));
  EXPECT_THAT(slow.output, ContainsRegex("64 +int4 .* \\+2\\.24% +<-"));
  EXPECT_THAT(slow.output, AllOf(ContainsRegex("exact +exact +4 "), ContainsRegex("int4 +lossy +0\\.5")));
  EXPECT_THAT(slow.output, HasSubstr("codec = \"int4\""));
  EXPECT_THAT(slow.output, HasSubstr("# measured: a final loss of -0.23% to +0.09% after ten steps of int8"));
  EXPECT_THAT(slow.output, Not(HasSubstr("topk"))) << "topk is only for users who ask for it";
  EXPECT_TRUE(std::filesystem::exists(folder_ / "plan.svg"));
  write("victim", "mine");
  std::filesystem::create_symlink(folder_ / "victim", folder_ / "one.svg");
  EXPECT_EQ(gradwire("plan --layers model.toml --codec-rate 10GB/s --ranks 8 --svg one.svg").status, 0);
  EXPECT_THAT(read_file(folder_ / "one.svg", 1 << 20, "plot"), HasSubstr("text-anchor=\"middle\">8</text>"));
  EXPECT_EQ(read_file(folder_ / "victim", 100, "file"), "mine") << "written through a link";
  const Outcome fast = gradwire(call + "--link 400Gbit/s --latency 1us");
  EXPECT_THAT(fast.output, HasSubstr("leave the job alone"));
  EXPECT_THAT(fast.output, HasSubstr("codec = \"exact\""));
  const Outcome far = gradwire(call + "--link 10Gbit/s --latency 100ms");
  EXPECT_THAT(far.output, HasSubstr("keep the link full, its frames may take 64MiB: less than the "));
  EXPECT_THAT(gradwire(call + "--link 10Gbit/s --latency 100ms --in-flight 1GiB").output, Not(HasSubstr("less than")));
  const Outcome tiers =
      gradwire(call + "--nodes-of 8 --link 10Gbit/s --intra-link 400Gbit/s --codecs int8 --target-exposed 1%");
  EXPECT_THAT(tiers.output, ContainsRegex("64 +int8 +hierarchical"));
  EXPECT_THAT(tiers.output, HasSubstr("algorithm = \"hierarchical\""));
  const Outcome uneven = gradwire(call + "--nodes-of 8 --ranks 12");
  EXPECT_EQ(uneven.status, 2);
  EXPECT_THAT(uneven.output, HasSubstr("--nodes-of 8 does not divide 12 ranks"));
  EXPECT_EQ(gradwire("plan --layers missing.toml").status, 2);
}

TEST_F(Tool, PlanDoesNotAdviseWhatLostTooMuch) {
  write("model.toml", "compute = \"1ms\"\n[[layer]]\nname = \"w\"\nshape = [2048, 2048]\n");
  const Outcome outcome =
      gradwire("plan --layers model.toml --codec-rate 10GB/s --ranks 4 --link 100Mbit/s --codecs 'int8,topk(1%)+int8'");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, ContainsRegex("topk\\(41/4096\\)\\+int8 +\\+10\\.8% +\\+6\\.93% +\\+27\\.95% +-\n"));
  EXPECT_THAT(outcome.output, ContainsRegex("topk.* \\+27\\.95% +not advised: lost more than 5%\n"));
  EXPECT_THAT(outcome.output, ContainsRegex("int8 .* <-\n"));
  EXPECT_THAT(outcome.output, HasSubstr("none of better quality is within 5% of this one"));
  EXPECT_THAT(outcome.output, HasSubstr("\ncodec = \"int8\"\n"));
}

TEST_F(Tool, PlanAdvisesTopkOnlyIfAskedAndWithItsConditions) {
  write("model.toml", "compute = \"1ms\"\n[[layer]]\nname = \"w\"\nshape = [2048, 2048]\n");
  const Outcome outcome = gradwire(
      "plan --layers model.toml --codec-rate 10GB/s --ranks 4 --link 100Mbit/s --codecs 'int8,topk(10%)+int8'");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, ContainsRegex("topk\\([0-9]+/4096\\)\\+int8 +\\+1\\.69% +- +- +-\n"));
  EXPECT_THAT(outcome.output, HasSubstr("# measured: a final loss of +1.69% (SGD) in the worst run\n# topk "));
  const Policy policy = Policy::parse(outcome.output.substr(outcome.output.find("version = 1\n")));
  EXPECT_EQ(policy.defaults.codec, CodecSpec::parse("topk(10%)+int8"));
  EXPECT_EQ(policy.defaults.warmup.size(), 1U);
}

TEST_F(Tool, InfoShowsEveryVariableAndItsValue) {
  const Outcome outcome = gradwire("info", "GRADWIRE_LOG=debug GRADWIRE_SIMD=scalar");
  EXPECT_EQ(outcome.status, 0);
  for (const EnvironmentVariable& variable : environment_variables()) {
    EXPECT_THAT(outcome.output, HasSubstr(std::string(variable.name) + " "));
    EXPECT_THAT(outcome.output, HasSubstr(std::string(variable.meaning) + "\n"));
  }
  EXPECT_THAT(outcome.output, ContainsRegex("GRADWIRE_LOG +debug +warn"));
  EXPECT_THAT(outcome.output, ContainsRegex("GRADWIRE_REPORT +- +none"));
  EXPECT_THAT(outcome.output, HasSubstr("gradwire " + std::string(kVersion) + " ("));
  EXPECT_THAT(outcome.output, HasSubstr("codecs used: scalar\n"));
  EXPECT_THAT(outcome.output, HasSubstr("Open MPI: " + (folder_ / "lib/libgradwire_mpi.so").string() + "\n"));
  EXPECT_THAT(outcome.output, HasSubstr("NCCL (LD_PRELOAD by hand): libgradwire_nccl.so was not built\n"));
  EXPECT_THAT(gradwire("info", "GRADWIRE_SIMD=fast").output,
              HasSubstr("codecs used: GRADWIRE_SIMD is \"fast\": write auto"));
}

// installed_layout tests the rest of the scripts and pages.
TEST_F(Tool, CompletionsNameWhatTheToolTakes) {
  for (const char* shell : {"bash", "fish", "zsh"}) {
    const Outcome outcome = gradwire(std::string("completion ") + shell);
    EXPECT_EQ(outcome.status, 0);
    for (const char* word : {"check", "plan", "dry-run", "multiple job", "fp8"}) {
      EXPECT_THAT(outcome.output, HasSubstr(word)) << shell;
    }
    EXPECT_THAT(outcome.output, Not(HasSubstr("documents"))) << "this command is only for the build";
  }
  const Outcome outcome = gradwire("completion tcsh");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("tcsh not in {bash,fish,zsh}"));
  EXPECT_EQ(gradwire("documents /proc/none").status, 2);
}

// The tool writes docs/reference/tool.md for its build; WRITE=1 copies it into the repository.
TEST_F(Tool, TheReferencePageSaysWhatTheToolTakes) {
  EXPECT_EQ(gradwire("documents share").status, 0);
  const std::string page = read_file(folder_ / "share/tool.md", 1U << 20U, "page");
  EXPECT_TRUE(is_committed("docs/reference/tool.md", page));
}

TEST_F(Tool, LinksOfAJobAreMeasured) {
  const std::string one = std::string(GRADWIRE_BIN) + "/gradwire info --link";
  const Outcome job =
      run_program(std::string(GRADWIRE_SOURCE_DIR) + "/tests/support/mpi_run " + GRADWIRE_MPIEXEC + " 2 " + one);
  EXPECT_EQ(job.status, 0);
  EXPECT_THAT(job.output, HasSubstr("Links of 2 ranks on 1 host, measured in "));
  EXPECT_THAT(job.output, ContainsRegex("inside the host +[0-9.]+[num]s +[0-9.]+[GM]bit/s"));
  EXPECT_THAT(job.output, HasSubstr("this is its memory, not a network"));
  EXPECT_THAT(run_program(one).output, HasSubstr("start it as a job: mpirun -np 4 gradwire info --link"));
  const Outcome alone = gradwire("info --link");  // a copy of the tool, without the program beside it
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.output, HasSubstr("gradwire-doctor cannot be started"));
}

TEST_F(Tool, WrongCommandLinesAreRefused) {
  for (const char* arguments :
       {"", "chekc", "check", "check a.toml --ranks 0", "run", "run --polcy x -- mpirun ./job"}) {
    EXPECT_EQ(gradwire(arguments).status, 2) << arguments;
  }
  EXPECT_EQ(gradwire("--help").status, 0);
  const Outcome version = gradwire("--version");
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.output, std::string(kVersion) + "\n");
}

}  // namespace
}  // namespace gradwire::test
