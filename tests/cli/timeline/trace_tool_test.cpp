// Tests gradwire trace as a user calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/timeline/traced_job.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

#ifdef GRADWIRE_DECODES
#include "tests/cli/timeline/decoded_trace.hpp"
#endif

namespace gradwire::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class TraceTool : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    job_ = new ScratchFolder;
    trace_a_job(job_->path());
  }
  static void TearDownTestSuite() { delete job_; }

  static Outcome trace(const std::string& arguments) {
    return run_program("timeout -k 5 60 " GRADWIRE_TOOL " trace " + arguments);
  }
  static std::string folder() { return job_->path().string(); }

  static inline ScratchFolder* job_ = nullptr;
};

TEST_F(TraceTool, SummaryNamesRanksStepsAndStages) {
  const Outcome outcome = trace("summary " + folder());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("trace of 4 ranks, "));
  EXPECT_THAT(outcome.output, HasSubstr("clocks: one, all ranks share a host"));
  EXPECT_THAT(outcome.output, ContainsRegex("session [0-9]+: 4 steps, median "));
  EXPECT_THAT(outcome.output, HasSubstr("critical path of all steps, a step:"));
  EXPECT_THAT(outcome.output, HasSubstr("on path: share of the critical path; inside: time in finish(); wait: "));
  EXPECT_THAT(outcome.output, HasSubstr("of the worst, step "));
  EXPECT_THAT(outcome.output, HasSubstr("rank 3: "));
}

TEST_F(TraceTool, SummaryAsJsonAddsUp) {
  const Outcome outcome = trace("summary --json --steps 1-3 " + folder());
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["schema"], "gradwire.trace_summary.1");
  ASSERT_EQ(json["ranks"].size(), 4U);
  EXPECT_EQ(json["ranks"][2]["clock_error_seconds"], 0);
  EXPECT_EQ(json["unmatched"], 0);
  ASSERT_EQ(json["streams"].size(), 2U);
  for (const auto& stream : json["streams"]) {
    EXPECT_EQ(stream["unit"], "step");
    EXPECT_EQ(stream["count"], 3) << "the first begins at the end of the previous step";
    for (const auto& path : {stream["path"], stream["median"]["path"], stream["worst"]["path"]}) {
      double shares = 0;
      for (const auto& part : path) {
        shares += part["share"].get<double>();
      }
      EXPECT_NEAR(shares, 1, 1e-9);
    }
    EXPECT_LE(stream["median"]["seconds"], stream["worst"]["seconds"]);
  }
}

TEST_F(TraceTool, AStepAloneTakesAsLongAsAmongOthers) {
  const auto seconds = [](const std::string& steps, std::size_t at) {
    const auto json = nlohmann::json::parse(trace("summary --json " + steps + folder()).output);
    const auto& step = json.at("streams").at(0).at("steps").at(at);
    EXPECT_EQ(step.at("step"), 3);
    return step.at("seconds").get<double>();
  };
  EXPECT_DOUBLE_EQ(seconds("--steps 3-3 ", 0), seconds("", 2));
  const Outcome first = trace("summary --steps 0-0 " + folder());
  EXPECT_EQ(first.status, 0);
  EXPECT_THAT(first.output,
              ContainsRegex("session [0-9]+: 0 steps\n  the begin of step 0 is not in the trace, so it is left out"));
}

TEST_F(TraceTool, MistakesAreNamed) {
  EXPECT_THAT(trace("").output, HasSubstr("a command is missing; write one of merge, summary"));
  EXPECT_THAT(trace("merg x").output, HasSubstr("did you mean gradwire trace merge?"));
  EXPECT_THAT(trace("--fast").output, HasSubstr("--fast is no option of gradwire trace"));
  EXPECT_THAT(trace("summary --steps 9-1 " + folder()).output, HasSubstr("--steps 9-1; write two numbers"));
  EXPECT_THAT(trace("summary --steps 900-999 " + folder()).output,
              HasSubstr("has no step or call that ended among steps"));
  const Outcome missing = trace("summary " + folder() + "/none");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.output, HasSubstr("none cannot be read"));
}

#ifdef GRADWIRE_DECODES
TEST_F(TraceTool, MergeWritesAFileThatDecodes) {
  const Outcome outcome = trace("merge " + folder());
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("trace.pftrace: 4 ranks, "));
  EXPECT_THAT(outcome.output, HasSubstr("https://ui.perfetto.dev"));
  const DecodedTrace decoded = decode(read_text(folder() + "/trace.pftrace"));
  EXPECT_GT(decoded.flows.size(), 100U);
  expect_flows(decoded, 2);

  const Outcome again = trace("merge " + folder() + " -o " + folder() + "/other --steps 2-2");
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_LT(std::filesystem::file_size(folder() + "/other"),
            std::filesystem::file_size(folder() + "/trace.pftrace") / 2);
}

TEST_F(TraceTool, AFileThatCannotBeWrittenIsNamed) {
  const Outcome outcome = trace("merge " + folder() + " -o " + folder() + "/none/file");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output,
              HasSubstr("none/file: cannot be written (No such file or directory); name another file with --output"));
  const Outcome full = trace("merge " + folder() + " -o /dev/full");
  EXPECT_EQ(full.status, 2);
  EXPECT_THAT(full.output, HasSubstr("/dev/full: only a part could be written (No space left on device)"));
}

// A link that leads nowhere would be taken for no file. Mutation tried: the file is opened in place.
TEST_F(TraceTool, MergeReplacesALinkAndNotWhatItLeadsTo) {
  const std::filesystem::path link = folder() + "/link";
  std::ofstream(folder() + "/mine.txt") << "mine";
  for (const char* const to : {"/nothing", "/mine.txt"}) {
    std::filesystem::remove(link);
    std::filesystem::create_symlink(folder() + to, link);
    const Outcome outcome = trace("merge " + folder() + " -o " + link.string());
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_FALSE(std::filesystem::is_symlink(link));
    EXPECT_GT(std::filesystem::file_size(link), 1000U);
  }
  EXPECT_FALSE(std::filesystem::exists(folder() + "/nothing"));
  EXPECT_EQ(read_text(folder() + "/mine.txt"), "mine");
}

TEST_F(TraceTool, MergeReplacesNothingButATimeline) {
  const std::string input = folder() + "/gradwire-library-rank-0.events";
  const std::string events = read_text(input);
  const Outcome for_rank = trace("merge " + folder() + " -o " + input);
  EXPECT_EQ(for_rank.status, 2);
  EXPECT_THAT(for_rank.output, HasSubstr("has the name of what a rank recorded, and would be lost"));
  EXPECT_EQ(read_text(input), events);
  const std::string notes = folder() + "/notes.txt";
  std::ofstream(notes) << "mine";
  const Outcome foreign = trace("merge " + folder() + " -o " + notes);
  EXPECT_EQ(foreign.status, 2);
  EXPECT_THAT(foreign.output, HasSubstr("notes.txt was not made by gradwire trace merge, and would be lost"));
  EXPECT_EQ(read_text(notes), "mine");
  EXPECT_EQ(trace("merge " + folder() + " -o " + folder() + "/twice").status, 0);
  EXPECT_EQ(trace("merge " + folder() + " -o " + folder() + "/twice").status, 0) << "it replaces its own file";
}

TEST_F(TraceTool, MergeOfNoStepSaysSo) {
  const Outcome outcome = trace("merge --steps 900-999 " + folder() + " -o " + folder() + "/nothing");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("has nothing of steps 900-999"));
  EXPECT_FALSE(std::filesystem::exists(folder() + "/nothing"));
}
#else
TEST_F(TraceTool, MergeSaysWhatItLacks) {
  const Outcome outcome = trace("merge " + folder());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("this build of gradwire has no protobuf"));
  EXPECT_THAT(outcome.output, HasSubstr("libprotobuf-dev and protobuf-compiler"));
}
#endif

}  // namespace
}  // namespace gradwire::test
