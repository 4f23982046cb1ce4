// Runs ctr_hybrid as a user does, with a tiny model: three ways to train, files of others, bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "python-free-examples/ctr_hybrid/metrics.hpp"
#include "tests/examples/run_ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(CtrHybrid, TrainsInThreeWays) {
  const ScratchFolder folder;
  const Outcome outcome = run_ranks_of(
      2, "ctr_hybrid --steps 60 --batch 64 --held-out 1024 --categories 512 --fields 4 --staleness 2 --json " +
             folder.file("a.json") + " --markdown " + folder.file("a.md"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json report = json::parse(read_text(folder.file("a.json")));
  const json& rows = report.at("rows");
  ASSERT_EQ(rows.size(), 3U);
  for (const json& row : rows) {
    EXPECT_GT(row.at("auc").get<double>(), 0.55) << row;
    EXPECT_LT(row.at("log_loss").get<double>(), row.at("curve")[0].at("log_loss").get<double>()) << row;
    EXPECT_EQ(row.at("curve").back().at("steps"), 60);
  }
  const json& synchronous = rows[0];
  const json& hybrid = rows[1];
  EXPECT_EQ(hybrid.at("mode"), "hybrid");
  EXPECT_LE(hybrid.at("maximum_age").get<int>(), 2);
  EXPECT_LT(hybrid.at("bytes_per_step").get<double>(), synchronous.at("bytes_per_step").get<double>() / 2);
  // All modes begin with equal models, so their results before any step are equal.
  EXPECT_NEAR(hybrid.at("curve")[0].at("auc").get<double>(), synchronous.at("curve")[0].at("auc").get<double>(), 1e-4);
  EXPECT_THAT(read_text(folder.file("a.md")), HasSubstr("| hybrid |"));
}

TEST(CtrHybrid, AgesAreThoseOfWhatTrainingRead) {
  const ScratchFolder folder;
  // One rank runs ahead of the other; evaluation reads hundreds of times as many rows, all of them up to date.
  const Outcome outcome = run_ranks_of(
      2,
      "ctr_hybrid --modes hybrid,asynchronous --steps 40 --evaluate-every 40 --batch 2 --held-out 16384 --fields 4 "
      "--zipf 0 --slow-rank 10 --staleness 3 --json " +
          folder.file("a.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json report = json::parse(read_text(folder.file("a.json")));
  const json& hybrid = report.at("rows")[0];
  const json& asynchronous = report.at("rows")[1];
  EXPECT_GT(hybrid.at("mean_age").get<double>(), 0.05);
  EXPECT_EQ(hybrid.at("dense_maximum_age"), 0);
  for (const std::string table : {"", "dense_"}) {
    EXPECT_GT(asynchronous.at(table + "mean_age").get<double>(), 0.05) << table;
    EXPECT_GE(asynchronous.at(table + "maximum_age").get<double>(), asynchronous.at(table + "mean_age").get<double>());
  }
}

TEST(CtrHybrid, TakesItsModesFromAPolicy) {
  const ScratchFolder folder;
  const std::string tiny =
      "ctr_hybrid --modes hybrid --steps 20 --batch 16 --held-out 64 --categories 512 --fields 4 --json " +
      folder.file("a.json");
  const auto run = [&](const std::string& options) {
    const Outcome outcome = run_ranks_of(2, tiny + options);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return json::parse(read_text(folder.file("a.json")));
  };
  const json exact = run("");
  EXPECT_EQ(exact.at("staleness"), 4);
  const json policy = run(" --policy " GRADWIRE_SOURCE_DIR "/python-free-examples/policies/embeddings.toml");
  EXPECT_EQ(policy.at("staleness"), 3);
  EXPECT_EQ(policy.at("codec"), "bf16");
  EXPECT_EQ(policy.at("gradient_codec"), "int8");
  EXPECT_LE(policy.at("rows")[0].at("maximum_age").get<int>(), 3);
  EXPECT_LT(policy.at("rows")[0].at("bytes_per_step").get<double>(),
            0.8 * exact.at("rows")[0].at("bytes_per_step").get<double>());
  std::ofstream(folder.file("dense.toml")) << "[defaults]\ncodec = \"int8\"\n";
  const Outcome bad = run_ranks_of(2, tiny + " --policy " + folder.file("dense.toml"));
  EXPECT_NE(bad.status, 0);
  EXPECT_THAT(bad.output, HasSubstr("table \"embeddings\": no rule matches it"));
}

TEST(CtrHybrid, ReadsFilesOfCriteosFormatAndNamesBadLines) {
  const ScratchFolder folder;
  const auto write = [&](const std::string& name, int bad_line) {
    std::ofstream stream(folder.file(name));
    for (int line = 1; line <= 40; ++line) {
      stream << (line % 3 == 0 ? 1 : 0);
      for (int i = 0; i < 13; ++i) {
        stream << '\t' << (i % 4 == 0 ? "" : line == bad_line ? "x" : std::to_string(line % 5));
      }
      for (int i = 0; i < 26; ++i) {
        stream << '\t' << (i % 5 == 0 ? "" : "68fd1e6" + std::to_string(line % 3));
      }
      stream << '\n';
    }
  };
  write("good.tsv", 0);
  write("bad.tsv", 7);
  const std::string tiny = "ctr_hybrid --modes hybrid --steps 40 --batch 8 --held-out 4 --categories 64 --data ";
  const Outcome good = run_ranks_of(2, tiny + folder.file("good.tsv") + " --json " + folder.file("a.json"));
  ASSERT_EQ(good.status, 0) << good.output;
  // Every third line is a click, which one category predicts.
  EXPECT_LT(json::parse(read_text(folder.file("a.json"))).at("rows")[0].at("log_loss").get<double>(), 0.4);
  const Outcome bad = run_ranks_of(2, tiny + folder.file("bad.tsv"));
  EXPECT_NE(bad.status, 0);
  EXPECT_THAT(bad.output, HasSubstr("bad.tsv:7: needs a click"));
}

TEST(CtrHybrid, MeasuresWhatItSays) {
  const std::vector<float> clicks{0, 1, 0, 1, 1};
  const std::vector<float> logits{-1, 2, 2, 0.5F, 3};
  // These are pairs of a click and a sample without one: 2 > -1, 2 = 2, 0.5 > -1, 0.5 < 2, 3 > -1, 3 > 2.
  EXPECT_DOUBLE_EQ(ctr_hybrid::area_under_curve(logits, clicks), 4.5 / 6);
  double loss = 0;
  for (std::size_t i = 0; i < clicks.size(); ++i) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(logits[i])));
    loss -= std::log(clicks[i] > 0 ? p : 1 - p) / 5;
  }
  EXPECT_NEAR(ctr_hybrid::log_loss(logits, clicks), loss, 1e-7);
}

}  // namespace
}  // namespace gradwire::test
