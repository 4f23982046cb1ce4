// bench_records: which training comes next, and what is made of those that there are. No training is made here.
#include "bench/records/campaign.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "bench/records/report.hpp"
#include "tests/bench/read_json.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::records {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Of two rows, two rates and two seeds.
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

TEST(BenchRecords, MakesEachTrainingOnceAndGoesOnWhereItWasStopped) {
  const test::ScratchFolder folder;
  const Settings settings = small_settings(folder);
  std::vector<std::string> made;
  // Seen red when next() did not look for what there is.
  for (auto next = Campaign(settings).next(); next && made.size() < 100; next = Campaign(settings).next()) {
    made.push_back(next->file());
    // The second rate suits the first row, the first rate the other one.
    const bool suits = (next->row == "dense") == (next->rate == 0.002);
    make(settings, *next, suits ? "2" : "3");
  }
  ASSERT_EQ(made.size(), 12U);
  EXPECT_THAT(std::vector<std::string>(made.begin(), made.begin() + 4),
              ElementsAre("iid-dense-2000-lr0.001-s1.json", "iid-dense-2000-lr0.002-s1.json",
                          "iid-topk_int2-2000-lr0.001-s1.json", "iid-topk_int2-2000-lr0.002-s1.json"));
  EXPECT_THAT(std::vector<std::string>(made.begin() + 8, made.end()),
              ElementsAre("iid-dense-2000-lr0.002-s2.json", "iid-topk_int2-2000-lr0.001-s2.json",
                          "own-dense-2000-lr0.002-s2.json", "own-topk_int2-2000-lr0.001-s2.json"));
  const Campaign campaign(settings);
  EXPECT_EQ(campaign.count().made, 12);
  EXPECT_EQ(campaign.count().all, 12);
}

TEST(BenchRecords, JudgesByBitsAndByTheMeanOfPairedSeeds) {
  const test::ScratchFolder folder;
  const Settings settings = small_settings(folder);
  std::filesystem::create_directories(settings.folder);
  for (const char* row : {"dense", "topk_int2"}) {
    const bool dense = std::string(row) == "dense";
    make(settings, {Data::iid, row, 0.001, 1, 2000}, dense ? "2" : "2.02", dense ? 32 : 0.2);
    make(settings, {Data::iid, row, 0.002, 1, 2000}, "3");
    make(settings, {Data::iid, row, 0.001, 2, 2000}, "4", dense ? 32 : 0.2);
  }
  // Ratios 1.01 and 1: not (2.02 + 4) / (2 + 4).
  const auto row = make_json(Campaign(settings)).at("rows").at(1);
  EXPECT_NEAR(row.at("loss_ratio").get<double>(), 1.005, 1e-9);
  EXPECT_NEAR(row.at("standard_error").get<double>(), 0.005, 1e-9);
  EXPECT_EQ(row.at("met"), true);
  EXPECT_EQ(row.at("learning_rate"), 0.001);
  EXPECT_THAT(make_table(Campaign(settings)).to_markdown(), HasSubstr("|met|"));
  EXPECT_THAT(plot(Campaign(settings)), HasSubstr("front"));
  // Too many bits at the same loss.
  for (const std::uint64_t seed : {1, 2}) {
    make(settings, {Data::iid, "topk_int2", 0.001, seed, 2000}, seed == 1 ? "2.02" : "4", 0.26);
  }
  EXPECT_EQ(make_json(Campaign(settings)).at("rows").at(1).at("met"), false);
}

TEST(BenchRecords, ATrainingThatDivergedLosesAndIsNoRecord) {
  const test::ScratchFolder folder;
  const Settings settings = small_settings(folder);
  std::filesystem::create_directories(settings.folder);
  for (const char* row : {"dense", "topk_int2"}) {
    const bool dense = std::string(row) == "dense";
    make(settings, {Data::iid, row, 0.001, 1, 2000}, "null");
    make(settings, {Data::iid, row, 0.002, 1, 2000}, "2", 0.2);
    make(settings, {Data::iid, row, 0.002, 2, 2000}, dense ? "2" : "null", 0.2);
  }
  const auto row = make_json(Campaign(settings)).at("rows").at(1);
  EXPECT_EQ(row.at("learning_rate"), 0.002);
  EXPECT_TRUE(row.at("loss_ratio").is_null());
  EXPECT_EQ(row.at("met"), false);
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
