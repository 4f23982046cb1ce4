// Tests bench_ratio on a small file of gradients, and the components that it shares with other benchmarks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "bench/ratio/lab_times.hpp"
#include "bench/support/inputs.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "plot/svg_plot.hpp"
#include "python-free-examples/char_lm/gradient_dump.hpp"
#include "tests/bench/read_json.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

TEST(BenchRatio, WritesARowForEachLayerPolicyAndStage) {
  const ScratchFolder folder;
  {
    gradient_dump::Writer writer(folder.file("gradients.bin"));
    std::vector<float> large(100'000), small(300);
    bench::fill_gradient(0, 0, large);
    bench::fill_gradient(1, 0, small);
    for (const std::uint32_t point : {0U, 1U}) {
      writer.add("layer.weight", point, large);
      writer.add("layer.bias", point, small);
    }
  }
  const Outcome outcome =
      run_program(std::string(GRADWIRE_BENCH_RATIO) + " --dump " + folder.file("gradients.bin") +
                  " --policy int8,built-in --json " + folder.file("ratio.json") + " --svg " + folder.file("ratio.svg"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("slower"));  // some codec always loses at 100 Gbit/s
  const auto rows = read_json(folder.file("ratio.json")).at("rows");
  ASSERT_EQ(rows.size(), 2U * 2 * 3);
  for (const auto& row : rows) {
    ASSERT_EQ(row.at("speedup").size(), 4U);
    for (const auto& speedup : row.at("speedup")) {
      EXPECT_EQ(speedup.at("how"), "predicted");
      EXPECT_EQ(speedup.at("slower").get<bool>(), speedup.at("value").get<double>() < 0.995);
    }
    if (row.at("layer") == "layer.weight") {
      EXPECT_NEAR(row.at("nominal_ratio").get<double>(), 3.96, 0.02);
      EXPECT_NEAR(row.at("counted_ratio").get<double>(), 3.94, 0.03);
      EXPECT_GT(row.at("nmse").get<double>(), 1e-5);
      EXPECT_LT(row.at("nmse").get<double>(), 2e-3);
      EXPECT_GT(row.at("encode_gb_per_s").get<double>(), 0);
    }
    if (row.at("layer") == "layer.bias" && row.at("policy") == "built-in") {
      EXPECT_EQ(row.at("codec"), "bf16");
    }
  }
  EXPECT_THAT(read_text(folder.file("ratio.svg")), HasSubstr("</svg>"));
}

TEST(BenchRatio, BadInputIsNamed) {
  const ScratchFolder folder;
  std::ofstream(folder.file("not.bin")) << "not gradients at all";
  const Outcome damaged = run_program(std::string(GRADWIRE_BENCH_RATIO) + " --dump " + folder.file("not.bin"));
  EXPECT_NE(damaged.status, 0);
  EXPECT_THAT(damaged.output, HasSubstr("not.bin: is neither .npy nor safetensors nor a file of char_lm"));
  EXPECT_NE(run_program(GRADWIRE_BENCH_RATIO).status, 0);
}

TEST(LabTimes, InterpolatesAndRefusesOtherReports) {
  const ScratchFolder folder;
  const auto write = [&](bool emulated) {
    nlohmann::json report{{"schema", "gradwire.bench_all_reduce.1"},
                          {"link", {{"emulated", emulated}, {"bytes_per_second", 119e6}}},
                          {"rows", nlohmann::json::array()}};
    const auto add = [&](const char* library, const char* codec, double bytes, double us) {
      report["rows"].push_back(
          {{"library", library}, {"codec", codec}, {"ranks", 4}, {"bytes", bytes}, {"time_us_p50", us}});
    };
    add("gradwire", "int8", 1000, 100);
    add("gradwire", "int8", 3000, 300);
    add("mpi", "fp32", 1000, 500);
    add("gloo", "fp32", 1000, 400);  // the fastest counts
    add("gloo", "fp32", 3000, 1200);
    std::ofstream(folder.file("lab.json")) << report;
  };
  write(false);
  const bench::LabTimes lab(folder.file("lab.json"), 4);
  EXPECT_DOUBLE_EQ(lab.speedup("int8", 2000).value(), 4.0);
  EXPECT_DOUBLE_EQ(lab.speedup("int8", 1000).value(), 4.0);
  EXPECT_FALSE(lab.speedup("int8", 999).has_value());
  EXPECT_FALSE(lab.speedup("int8", 3001).has_value());
  EXPECT_FALSE(lab.speedup("bf16", 2000).has_value());
  EXPECT_THROW(bench::LabTimes(folder.file("lab.json"), 2), std::runtime_error);
  write(true);
  EXPECT_THROW(bench::LabTimes(folder.file("lab.json"), 4), std::runtime_error);
}

TEST(Samples, Quantiles) {
  EXPECT_DOUBLE_EQ(bench::median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(bench::median({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(bench::quantile({5}, 0.9), 5);
  EXPECT_DOUBLE_EQ(bench::quantile({1, 2}, 0), 1);
  EXPECT_THROW((void)bench::median({}), std::invalid_argument);
}

TEST(Inputs, AreAPureFunctionOfRankAndIndex) {
  std::vector<float> whole(5000), part(700), other(5000);
  bench::fill_gradient(3, 0, whole);
  bench::fill_gradient(3, 1500, part);
  bench::fill_gradient(4, 0, other);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1500));
  EXPECT_NE(whole, other);
}

TEST(TextTable, AlignsAndKeepsUnknownVisible) {
  bench::TextTable table({"name", "value"});
  table.add({"a", bench::fixed(12.345, 1)});
  table.add({"long name", bench::fixed(NAN, 1)});
  EXPECT_EQ(table.to_text(), "name       value\na           12.3\nlong name      -\n");
  EXPECT_THAT(table.to_markdown(), HasSubstr("| --- | --- |\n| a | 12.3 |"));
}

TEST(TextTable, DocumentsAreNoWiderThanAllowed) {
  const std::string x(60, 'x');
  bench::TextTable table({"a", "b", "c"});
  table.add({x, x, "1234567890"});  // 140 with blanks
  EXPECT_THAT(table.to_markdown(), HasSubstr("| a | b | c |\n"));
  table.add({x, x, "12345678901"});
  const std::string head = "one " + x + " two " + x + " three " + x + "\nnext\n";
  EXPECT_EQ(bench::to_document(head, table), "one " + x + " two " + x + " three\n" + x + "\nnext\n\n" +
                                                 "|a|b|c|\n|---|---|---|\n|" + x + "|" + x + "|1234567890|\n|" + x +
                                                 "|" + x + "|12345678901|\n");
}

TEST(SvgPlot, EscapesTextAndLeavesOutWhatHasNoPlace) {
  const plot::Plot plot{.title = "a < b",
                        .x = {.label = "x", .logarithmic = true},
                        .y = {.label = "y"},
                        .series = {{.name = "s", .points = {{1, 1}, {10, NAN}, {0, 2}, {100, 3}}}}};
  const std::string svg = plot::render_svg({plot});
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  std::size_t markers = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) {
    ++markers;
  }
  EXPECT_EQ(markers, 3U);  // two points, and one in the legend
}

TEST(SvgPlot, StacksPlotsAndNamesTheirLevels) {
  const plot::Plot plot{.title = "codec",
                        .x = {.label = "s"},
                        .y = {.label = "", .names = {"dense", "int8"}},
                        .series = {{.name = "auto", .points = {{0, 0}, {1, 0}, {1, 1}}, .markers = false}}};
  const std::string svg = plot::render_svg({plot, plot}, "", {.stacked = true, .width = 800, .height = 100});
  EXPECT_THAT(svg, HasSubstr(">int8</text>"));
  EXPECT_THAT(svg, HasSubstr("translate(0 0.0)"));
  EXPECT_THAT(svg, HasSubstr("translate(0 204.0)"));  // 100, and the room for titles and labels
  EXPECT_THAT(svg, HasSubstr("width=\"1014\" height=\"408\""));
  EXPECT_EQ(svg.find("<circle"), std::string::npos) << "there are no dots, not even in the legend";
}

TEST(SvgPlot, HasRoomForLongAndManyNames) {
  plot::Plot plot{.title = "t", .x = {.label = "x"}, .y = {.label = "y"}, .reference = 1, .reference_name = "dense"};
  for (int i = 0; i < 30; ++i) {
    plot.series.push_back({.name = std::string(60, 'a') + std::to_string(i), .points = {{0, 1}, {1, 2}}});
  }
  const std::string svg = plot::render_svg({plot});
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex(R"re(width="([0-9]+)" height="([0-9]+)")re")));
  EXPECT_GT(std::stod(size[1]), 64 + 440 + 38 + 62 * 6) << "the longest name ends in the picture";
  EXPECT_GT(std::stod(size[2]), 48 + 30 * 19) << "so does the last one";
  EXPECT_THAT(svg, HasSubstr("text-anchor=\"end\" font-style=\"italic\">dense<")) << "not on top of the names";
}

TEST(SvgPlot, WhatWasNotMeasuredIsHollow) {
  plot::Plot plot{.title = "t", .x = {.label = "x"}, .y = {.label = "y"}};
  plot.series = {{.name = "ours", .points = {{0, 1}}}, {.name = "theirs", .points = {{1, 1}}, .hollow = true}};
  const std::string svg = plot::render_svg({plot});
  EXPECT_THAT(svg, ::testing::ContainsRegex("<rect [^>]* fill=\"white\" stroke=\"#D55E00\""));
  EXPECT_EQ(svg.find("fill=\"white\" stroke=\"#0072B2\""), std::string::npos);
}

// Returns every attribute of the lines of a picture, without their points.
std::multiset<std::string> strokes(const std::string& svg) {
  static const std::regex kLine(R"re(<path d="[^"]*" fill="none"([^/]*)/>)re");
  std::multiset<std::string> found;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kLine), end; it != end; ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

TEST(SvgPlot, NineSeriesHaveNineColours) {
  plot::Plot plot{.title = "nine", .x = {.label = "x"}, .y = {.label = "y"}};
  for (int i = 0; i < 9; ++i) {
    plot.series.push_back({.name = std::to_string(i), .points = {{0, i}, {1, i}}, .markers = false});
  }
  const std::multiset<std::string> found = strokes(plot::render_svg({plot}));
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), 9U);
  for (const std::string& stroke : found) {
    EXPECT_EQ(stroke.find("dasharray"), std::string::npos) << stroke;
  }
}

// The picture of fp16, whose error is a thousandth of the next one's, has its dot inside of the axes.
TEST(SvgPlot, DotsOfALongLogarithmicAxisStandOffItsEnds) {
  plot::Plot plot{.title = "t", .x = {.label = "x"}, .y = {.label = "y", .logarithmic = true}};
  plot.series = {{.name = "s", .points = {{0, 1e-3}, {1, 100}}, .line = false}};
  const std::string svg = plot::render_svg({plot});
  std::smatch dot;
  ASSERT_TRUE(std::regex_search(svg, dot, std::regex(R"re(<circle cx="[^"]*" cy="([0-9.]+)")re")));
  EXPECT_LT(std::stod(dot[1]), 48 + 280 - 8) << "the axis is at 328, and a dot has a radius of 3.6";
}

TEST(SvgPlot, NoTwoLinesLookAlike) {
  plot::Plot plot{.title = "many", .x = {.label = "x"}, .y = {.label = "y"}};
  for (int i = 0; i < 16; ++i) {
    plot.series.push_back({.name = std::to_string(i), .points = {{0, i}, {1, i}}, .markers = false});
  }
  const std::multiset<std::string> found = strokes(plot::render_svg({plot}));
  EXPECT_EQ(found.size(), 32U) << "a line and its place in the legend";
  for (const std::string& stroke : found) {
    EXPECT_EQ(found.count(stroke), 2U) << stroke;
  }
}

TEST(SvgPlot, AnAxisBeginsAtZeroUnlessItMayNot) {
  plot::Plot plot{
      .title = "t", .x = {.label = "x"}, .y = {.label = "y"}, .series = {{.name = "s", .points = {{1, 70}, {2, 80}}}}};
  EXPECT_THAT(plot::render_svg({plot}), HasSubstr("text-anchor=\"end\">0</text>"));
  plot.y.from_zero = false;
  const std::string svg = plot::render_svg({plot});
  EXPECT_EQ(svg.find("text-anchor=\"end\">0</text>"), std::string::npos);
  for (const char* tick : {"70", "75", "80"}) {
    EXPECT_THAT(svg, HasSubstr(std::string("text-anchor=\"end\">") + tick + "</text>"));
  }
}

TEST(SvgPlot, ALogarithmicAxisHasATick) {
  const auto ticks_of = [](std::vector<std::pair<double, double>> points) {
    return plot::render_svg({{.title = "t",
                              .x = {.label = "x", .logarithmic = true},
                              .y = {.label = "y"},
                              .series = {{.name = "s", .points = std::move(points)}}}});
  };
  EXPECT_THAT(ticks_of({{8, 1}}), HasSubstr("text-anchor=\"middle\">8</text>"));
  const std::string two = ticks_of({{6, 1}, {7, 1}});
  EXPECT_THAT(two, HasSubstr("text-anchor=\"middle\">6</text>"));
  EXPECT_THAT(two, HasSubstr("text-anchor=\"middle\">7</text>"));
}

}  // namespace
}  // namespace gradwire::test
