// Tests that `gradwire plan` shows exactly the losses in the documents that it names.
#include "cli/measured_loss.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <regex>
#include <string>

namespace gradwire::cli {
namespace {

using Losses = std::map<std::string, double>;  // percent, by codec as CodecSpec prints it

// Reads each line that `pattern` matches: the first group is the codec, and `percent` reads the second as a number.
Losses read_losses(const LossRun& run, const std::string& pattern,
                   const std::function<double(const std::string&)>& percent) {
  std::ifstream document(std::string(GRADWIRE_SOURCE_DIR) + "/" + std::string(run.document));
  EXPECT_TRUE(document.is_open()) << run.document;
  const std::regex expression(pattern);
  Losses losses;
  for (std::string line; std::getline(document, line);) {
    std::smatch match;
    if (std::regex_search(line, match, expression)) {
      const std::string name = std::regex_replace(match[1].str(), std::regex("topk([0-9]+)_"), "topk($1%)+");
      losses[CodecSpec::parse(name).to_string()] = percent(match[2]);
    }
  }
  return losses;
}

double of_ratio(const std::string& text) { return std::round((std::stod(text) - 1) * 1e6) / 1e4; }
double of_percent(const std::string& text) { return std::stod(text); }

void expect_equal(std::size_t run, const Losses& document) {
  Losses table;
  for (const MeasuredLoss& loss : measured_losses()) {
    if (loss.percent[run]) {
      table[CodecSpec::parse(std::string(loss.codec)).to_string()] = *loss.percent[run];
    }
  }
  EXPECT_EQ(table, document) << kLossRuns[run].document;
}

TEST(MeasuredLoss, OfTheClassifier) {
  // Compares the policies as written: second hop and error feedback are the codec's defaults.
  expect_equal(
      0, read_losses(kLossRuns[0], R"(^32-64-10 +(?!dense)(\S+) +auto +auto: \S+ +[0-9.]+ +([0-9.]+) )", of_ratio));
}

TEST(MeasuredLoss, OfTheLanguageModelOver1000Steps) {
  expect_equal(1, read_losses(kLossRuns[1], R"(^(\S+) over 5 seeds: held-out loss ([0-9.]+) of dense)", of_ratio));
}

TEST(MeasuredLoss, OfTheLanguageModelOver240Steps) {
  expect_equal(2, read_losses(kLossRuns[2], R"(^(\S+) against dense: held-out loss ([-+0-9.]+)%)", of_percent));
}

TEST(MeasuredLoss, OfTheLanguageModelOver2000Steps) {
  expect_equal(3, read_losses(kLossRuns[3], R"(^\|whole text\|(int[248])\|(?:[^|]*\|){5}([0-9.]+)\|)", of_ratio));
}

TEST(MeasuredLoss, AfterAWarmup) {
  const Losses int2 =
      read_losses(kLossRuns[3], R"(^\|whole text\|(int2), frozen\|(?:[^|]*\|){5}([0-9.]+)\|)", of_ratio);
  EXPECT_EQ(loss_text(int2.at("int2")), "+0.38%");
  EXPECT_TRUE(loss_after_warmup(CodecSpec::parse("int2")).starts_with("+0.38% after 300 steps"));
  std::ifstream document(std::string(GRADWIRE_SOURCE_DIR) + "/docs/results/README.md");
  const std::string text{std::istreambuf_iterator<char>(document), {}};
  EXPECT_NE(text.find("| int4_after_int8 | -0.04%, -0.23%, +0.09% |"), std::string::npos);
  EXPECT_TRUE(loss_after_warmup(CodecSpec::parse("int4")).starts_with("-0.23% to +0.09% after ten steps"));
  EXPECT_EQ(loss_after_warmup(CodecSpec::parse("int8")), "");
}

TEST(MeasuredLoss, IsFoundAndToldByCodec) {
  EXPECT_EQ(worst_loss_text(CodecSpec::parse("topk(41/4096)+int8")), "+27.95%");
  EXPECT_EQ(worst_loss_text(CodecSpec::parse("int8")), "+0.05%");
  EXPECT_EQ(worst_loss_text(CodecSpec::parse("int2")), "+1.09%");
  EXPECT_EQ(worst_loss_text(CodecSpec::parse("sign")), "+2.06% (SGD)");
  EXPECT_TRUE(loses_too_much(CodecSpec::parse("topk(1%)+int8")));
  EXPECT_FALSE(loses_too_much(CodecSpec::parse("int4")));
  EXPECT_FALSE(loses_too_much(CodecSpec::parse("topk(3%)+int8"))) << "not measured";
  EXPECT_EQ(worst_loss_text(CodecSpec::exact()), "0%");
  EXPECT_EQ(worst_loss_text(CodecSpec::parse("topk(3%)+int8")), "not measured");
  EXPECT_EQ(loss_text(std::nullopt), "-");
}

}  // namespace
}  // namespace gradwire::cli
