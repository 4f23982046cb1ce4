// Tests the plot of ctr_hybrid's report: its curves, and its errors for unusable files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::bench {
namespace {

using ::testing::HasSubstr;

TEST(PlotSync, DrawsACurveAMode) {
  const test::ScratchFolder folder;
  std::ofstream(folder.file("a.json")) << R"({"ranks": 2, "link": "", "data": "3 fields", "rows": [
    {"mode": "hybrid", "curve": [{"steps": 0, "seconds": 0, "auc": 0.5}, {"steps": 9, "seconds": 1, "auc": 0.7}]},
    {"mode": "hybrid", "curve": []}, {"mode": "asynchronous", "curve": [{"steps": 9, "seconds": 1, "auc": 0.6}]}]})";
  const auto result =
      test::run_program(std::string(GRADWIRE_PLOT_SYNC) + " " + folder.file("a.json") + " " + folder.file("a.svg"));
  EXPECT_EQ(result.status, 0) << result.output;
  std::ifstream in(folder.file("a.svg"));
  const std::string svg((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (const char* text : {"AUC against time", "hybrid", "asynchronous", "2 ranks, the link as it is, 3 fields"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, HasSubstr("text-anchor=\"end\">60</text>"));
  EXPECT_EQ(svg.find("text-anchor=\"end\">20</text>"), std::string::npos) << "from 0 the curves are one line";
}

TEST(PlotSync, NamesAFileThatIsNoReport) {
  const auto result = test::run_program(std::string(GRADWIRE_PLOT_SYNC) + " /dev/null /dev/null");
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("/dev/null"));
}

}  // namespace
}  // namespace gradwire::bench
