// Tests the demo: a short form of it holds what it claims, with its own model and link; a terminal shows a bar; and its
// sentences fit results that other machines may have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "python-free-examples/char_lm/conclusions.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Returns the command of the demo as `./run demo` starts it, with its results in `folder`.
std::string demo(const ScratchFolder& folder, const std::string& arguments) {
  return std::string("GRADWIRE_BIN='") + GRADWIRE_BIN + "' GRADWIRE_RESULTS='" + folder.file("results") + "' '" +
         GRADWIRE_SOURCE_DIR + "/python-free-examples/char_lm/demo' " + arguments;
}

/// Returns the lines that a terminal showed, including those that others replaced.
std::vector<std::string> lines_of(std::string output) {
  std::replace(output.begin(), output.end(), '\r', '\n');
  std::istringstream in(output);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

// This uses the demo's model and link, with two ranks, for which two cores are enough.
TEST(Demo, AShortFormHoldsWhatItClaims) {
  const ScratchFolder folder;
  const Outcome outcome = run_program("RANKS=2 " + demo(folder, "--steps 20"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json report = json::parse(read_text(folder.file("results/demo.json")), nullptr, false);
  ASSERT_TRUE(report.is_object()) << outcome.output;
  EXPECT_EQ(report.at("run").at("link"), "emulated 100Mbit/s");
  std::map<std::string, json> rows;
  for (const json& row : report.at("rows")) {
    rows[row.at("policy")] = row;
  }
  ASSERT_TRUE(rows.contains("dense") && rows.contains("int8") && rows.contains("auto") &&
              rows.contains("int4_after_int8"));
  const auto of = [&](const std::string& row, const char* what) { return rows.at(row).at(what).get<double>(); };

  // Ten of the twenty steps of the last row are int8. The choices of `auto` depend on times: on a busy machine it may
  // pass.
  const std::map<std::string, double> fewer_bytes{
      {"dense", 0.99}, {"int8", 3.8}, {"auto", 0.99}, {"int4_after_int8", 5.5}};
  double shortest = of("dense", "seconds");
  for (const auto& [name, row] : rows) {
    EXPECT_NEAR(of(name, "held_out_loss"), of("dense", "held_out_loss"), 0.01 * of("dense", "held_out_loss")) << name;
    EXPECT_LT(of(name, "held_out_loss"), 3.6) << name << " learned nothing: a guess costs 4.5";
    EXPECT_GE(of("dense", "bytes_sent_per_step") / of(name, "bytes_sent_per_step"), fewer_bytes.at(name)) << name;
    shortest = std::min(shortest, of(name, "seconds"));
  }
  const bool some_row_is_faster = shortest < of("dense", "seconds");  // three times on a quiet machine

  // A perfect ring sends 2 (P-1)/P of the gradients: the baseline must not be worse than that.
  const double ring = 4 * report.at("run").at("parameters").get<double>();  // between two ranks
  EXPECT_LT(of("dense", "bytes_sent_per_step"), 1.01 * ring);

  for (const char* said : {"2 ranks on this machine", "link:    emulated, 100Mbit/s", "dense training waited",
                           some_row_is_faster ? "The fastest row, " : "No row was faster than dense",
                           "Every held-out loss is within 1%"}) {
    EXPECT_THAT(outcome.output, HasSubstr(said));
  }
  EXPECT_THAT(outcome.output, HasSubstr("\nplot: " + folder.file("results/demo.svg")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("\r"))) << "nobody watches, so there must be no bar";
  const std::string plot = read_text(folder.file("results/demo.svg"));
  for (const auto& [name, row] : rows) {
    EXPECT_THAT(plot, HasSubstr(">" + name + "<"));
    EXPECT_GE(row.at("curve").size(), 2U) << name;
  }
}

TEST(Demo, ShowsABarOnATerminal) {
  if (run_program("command -v script").status != 0) {
    GTEST_SKIP() << "there is no script(1) here to make a terminal";
  }
  const ScratchFolder folder;
  std::ofstream(folder.file("demo")) << demo(
      folder,
      "--steps 4 --link 10Gbit/s --batch 1 --context 16 --width 64 --layers 1 --policies 'dense,topk(10%)+int8'");
  const Outcome outcome = run_program("RANKS=2 script -qec 'sh " + folder.file("demo") + "' /dev/null </dev/null");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  int bars = 0;
  for (const std::string& line : lines_of(outcome.output)) {
    if (line.find("[#") != std::string::npos) {
      ++bars;
      EXPECT_LT(line.size(), 80U) << "breaks on a terminal of 80 columns: " << line;
    }
  }
  EXPECT_EQ(bars, 8) << "of two rows with four steps each:\n" << outcome.output;
}

char_lm::RunResult row(const std::string& policy, double seconds, double held_out_loss, double bytes) {
  char_lm::RunResult result;
  result.policy = policy;
  result.seconds = seconds;
  result.held_out_loss = held_out_loss;
  result.bytes_sent_per_step = bytes;
  result.ms_per_step = 500;
  result.exposed_comm_ms = 450;
  return result;
}

TEST(DemoSentences, SayWhatWasSeen) {
  const auto dense = row("dense", 40, 2, 8e6);
  EXPECT_THAT(
      char_lm::conclude({row("int8", 16, 2.01, 2e6), dense, row("int4", 10, 1.99, 1e6)}, "100Mbit/s"),
      ElementsAre("Over the emulated 100Mbit/s dense training waited for gradients 90% of its time, 450 of 500 ms "
                  "a step: the link held it back.",
                  "The fastest row, int4, took 10.0 s from start to end where dense took 40.0 s: 4.0 times as "
                  "fast, with 8.0 times fewer bytes.",
                  "Every held-out loss is within 1% of dense's 2.0000: int8 +0.50%, int4 -0.50%."));
}

TEST(DemoSentences, SayWhereAClaimDoesNotHold) {
  auto dense = row("dense", 40, 2, 8e6);
  dense.exposed_comm_ms = 100;
  EXPECT_THAT(
      char_lm::conclude({dense, row("int8", 41, 2.0, 2e6), row("int4", 44, 2.2, 1e6), row("sign", 50, NAN, 1e5)}, ""),
      ElementsAre("Without an emulated link dense training waited for gradients 20% of its time, 100 of 500 ms a "
                  "step: computing took longer than the link.",
                  "No row was faster than dense: the fastest, int8, took 41.0 s from start to end, dense 40.0 s.",
                  AllOf(HasSubstr("Not every held-out loss is within 1% of dense's 2.0000: int4 +10.00%, sign "),
                        HasSubstr("nan"), Not(HasSubstr("int8")))));
  EXPECT_THAT(char_lm::conclude({dense}, ""), IsEmpty());
  EXPECT_THAT(char_lm::conclude({row("int8", 1, 1, 1), row("int4", 1, 1, 1)}, ""), IsEmpty());
}

}  // namespace
}  // namespace gradwire::test
