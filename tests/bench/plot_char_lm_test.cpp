// The plot of char_lm's report, by time and by bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::bench {
namespace {

using ::testing::HasSubstr;

TEST(PlotCharLm, DrawsLossesOverTimeOrBytes) {
  const test::ScratchFolder folder;
  const auto draw = [&](const std::string& bytes, const std::string& options) {
    std::ofstream(folder.file("a.json")) << R"({"run": {"ranks": 4, "link": "1Gbit/s"}, "rows": [{"policy": "int8",
      "curve": [{"seconds": 1, "held_out_loss": 3)" +
                                                bytes + "}]}]}";
    return test::run_program(std::string(GRADWIRE_PLOT_CHAR_LM) + " " + folder.file("a.json") + " " +
                             folder.file("a.svg") + options);
  };
  const std::string bytes = ", \"bytes_sent\": 2e6";
  EXPECT_EQ(draw(bytes, "").status, 0);
  EXPECT_THAT(test::read_text(folder.file("a.svg")), HasSubstr("Held-out loss against time"));
  EXPECT_EQ(draw(bytes, " --x seconds").status, 0);
  EXPECT_EQ(draw(bytes, " --x bytes").status, 0);
  EXPECT_THAT(test::read_text(folder.file("a.svg")), HasSubstr("MB that a rank has sent"));
  const auto old = draw("", " --x bytes");
  EXPECT_EQ(old.status, 1);
  EXPECT_THAT(old.output, HasSubstr("a.json: its curves have no bytes_sent; run char_lm again"));
  EXPECT_EQ(draw(bytes, " --x hours").status, 2);
}

}  // namespace
}  // namespace gradwire::bench
