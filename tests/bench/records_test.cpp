// Tests bench_records: which training comes next, and the results computed from existing ones. Trains nothing.
#include "bench/records/campaign.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "bench/records/report.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::records {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Settings with three rows, two rates and two seeds.
Settings small_settings(const test::ScratchFolder& folder) {
  Settings settings;
  settings.folder = folder.file("runs");
  settings.rates = {0.001, 0.002};
  settings.seeds = 2;
  settings.only = {"topk_int2"};
  return settings;
}

void make(const Settings& settings, const Run& run, const std::string& loss, double bits = 32) {
  std::ofstream(std::filesystem::path(settings.folder) / run.file())
      << R"({"rows": [{"held_out_loss": )" << loss << R"(, "train_loss": 1, "bits_per_element_and_hop": )" << bits
      << R"(, "bits_per_element_and_hop_in_whole": )" << 2 * bits << "}]}";
}

Run run_of(const Settings& settings, const std::string& name, double rate, std::uint64_t seed) {
  const Campaign campaign(settings);
  for (const Row& row : campaign.rows()) {
    if (row.name == name) {
      return campaign.training(Data::iid, row, rate, seed);
    }
  }
  throw std::runtime_error("no such row");
}

// Makes the trainings of a row with two seeds of rate 0.001, and one of rate 0.002 that suits it less.
void make_row(const Settings& settings, const std::string& name, const std::string& first, const std::string& second,
              double bits) {
  make(settings, run_of(settings, name, 0.001, 1), first, bits);
  make(settings, run_of(settings, name, 0.002, 1), "9");
  make(settings, run_of(settings, name, 0.001, 2), second, bits);
}

nlohmann::ordered_json row_of(const Settings& settings, const std::string& name) {
  const auto report = make_json(Campaign(settings));
  for (const auto& row : report.at("rows")) {
    if (row.at("policy") == name) {
      return row;
    }
  }
  return {};
}

TEST(BenchRecords, MakesEachTrainingOnceAndGoesOnWhereItWasStopped) {
  const test::ScratchFolder folder;
  const Settings settings = small_settings(folder);
  std::vector<std::string> made;
  // Mutation tried: next() does not check which trainings exist.
  for (auto next = Campaign(settings).next(); next && made.size() < 100; next = Campaign(settings).next()) {
    made.push_back(next->file());
    // The second rate suits the first row, the first rate the other one.
    const bool suits = (next->row == "dense") == (next->rate == 0.002);
    make(settings, *next, suits ? "2" : "3");
  }
  ASSERT_EQ(made.size(), 18U);
  const auto file = [&](const std::string& row, const std::string& rate, int seed) {
    const std::string whole = run_of(settings, row, 0.001, 1).file();
    return whole.substr(0, whole.find("-lr")) + "-lr" + rate + "-s" + std::to_string(seed) + ".json";
  };
  EXPECT_THAT(std::vector<std::string>(made.begin(), made.begin() + 3),
              ElementsAre(file("dense", "0.001", 1), file("dense", "0.002", 1), file("frozen", "0.001", 1)));
  EXPECT_THAT(std::vector<std::string>(made.begin() + 12, made.begin() + 15),
              ElementsAre(file("dense", "0.002", 2), file("frozen", "0.001", 2), file("topk_int2", "0.001", 2)));
  const Campaign campaign(settings);
  EXPECT_EQ(campaign.count().made, 18);
  EXPECT_EQ(campaign.count().all, 18);
}

TEST(BenchRecords, JudgesByBitsAndByTheMeanOfPairedSeeds) {
  const test::ScratchFolder folder;
  const Settings settings = small_settings(folder);
  std::filesystem::create_directories(settings.folder);
  make_row(settings, "dense", "2", "4", 32);
  make_row(settings, "frozen", "2", "4", 32);
  make(settings, run_of(settings, "topk_int2", 0.001, 1), "2", 0.2);
  make(settings, run_of(settings, "topk_int2", 0.002, 1), "9");
  EXPECT_EQ(row_of(settings, "topk_int2").at("verdict"), "") << "only one of two seeds is made";
  make_row(settings, "topk_int2", "2.02", "4", 0.2);
  // The ratios are 1.01 and 1; the result is their mean, not (2.02 + 4) / (2 + 4).
  const auto row = row_of(settings, "topk_int2");
  EXPECT_NEAR(row.at("loss_ratio").get<double>(), 1.005, 1e-9);
  EXPECT_NEAR(row.at("standard_error").get<double>(), 0.005, 1e-9);
  EXPECT_EQ(row.at("learning_rate"), 0.001);
  EXPECT_EQ(row.at("verdict"), "met");
  const std::string picture = plot(Campaign(settings));
  EXPECT_THAT(picture, HasSubstr("front"));
  EXPECT_THAT(picture,
              ContainsRegex("fill=\"white\" stroke=[^\n]*\n<[^\n]*\n<text[^\n]*>SparseLoCo, bits as published"))
      << "what others published is no measurement of ours";
  make_row(settings, "topk_int2", "2.06", "4", 0.2);  // 1.015 +- .015
  EXPECT_EQ(row_of(settings, "topk_int2").at("verdict"), "within error");
  make_row(settings, "topk_int2", "2.06", "4.12", 0.2);
  EXPECT_EQ(row_of(settings, "topk_int2").at("verdict"), "missed");
  make_row(settings, "topk_int2", "2", "4", 0.26);
  EXPECT_EQ(row_of(settings, "topk_int2").at("verdict"), "missed") << "too many bits";
  make_row(settings, "topk_int2", "2", "4", 0.2);
  make_row(settings, "frozen", "1.9", "3.8", 32);
  EXPECT_EQ(row_of(settings, "topk_int2").at("verdict"), "missed") << "1.05 times the control";
}

TEST(BenchRecords, ATrainingThatDivergedLosesAndIsNoRecord) {
  const test::ScratchFolder folder;
  const Settings settings = small_settings(folder);
  std::filesystem::create_directories(settings.folder);
  for (const char* name : {"dense", "frozen", "topk_int2"}) {
    const bool sound = std::string(name) != "topk_int2";
    make(settings, run_of(settings, name, 0.001, 1), "null");
    make(settings, run_of(settings, name, 0.002, 1), "2", 0.2);
    make(settings, run_of(settings, name, 0.002, 2), sound ? "2" : "null", 0.2);
  }
  const auto row = row_of(settings, "topk_int2");
  EXPECT_EQ(row.at("learning_rate"), 0.002);
  EXPECT_TRUE(row.at("loss_ratio").is_null());
  EXPECT_EQ(row.at("verdict"), "missed");
  EXPECT_THAT(plot(Campaign(settings)), Not(HasSubstr("nan")));
}

TEST(BenchRecords, SaysWhatItCannotUse) {
  const test::ScratchFolder folder;
  const std::string program = GRADWIRE_BENCH_RECORDS;
  EXPECT_THAT(test::run_program(program + " --folder " + folder.file("a") + " --only int3").output,
              HasSubstr("\"int3\" is none of dense, frozen"));
  EXPECT_EQ(test::run_program(program).status, 2);
  std::ofstream(folder.file("cut.json")) << R"({"rows": [)";
  const auto cut = test::run_program(program + " --folder " + folder.file(""));
  EXPECT_EQ(cut.status, 1);
  EXPECT_THAT(cut.output, HasSubstr("cut.json: char_lm did not write it"));
}

TEST(BenchRecords, GivesTheArgumentsOfTheNextTraining) {
  const test::ScratchFolder folder;
  const auto next = test::run_program(std::string(GRADWIRE_BENCH_RECORDS) + " next --folder " + folder.file("runs"));
  EXPECT_EQ(next.status, 0);
  EXPECT_THAT(next.output, HasSubstr("--policies\ndense\n"));
  EXPECT_THAT(next.output, HasSubstr("training 1 of "));
  EXPECT_THAT(next.output, HasSubstr("--iid\n"));
}

}  // namespace
}  // namespace gradwire::records
