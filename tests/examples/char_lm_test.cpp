// Runs char_lm as a user does, with a tiny model: its output, its learning, and its answers to bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "gradwire/error.hpp"
#include "record/gradient_files.hpp"
#include "tests/examples/run_ranks.hpp"

namespace gradwire::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kTiny = " --batch 2 --context 32 --width 64 --layers 1 ";

/// A folder for this test alone.
class CharLm : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("char_lm_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }

  [[nodiscard]] static json read_json(const std::string& file) {
    std::ifstream in(file);
    return json::parse(in, nullptr, false);
  }

 private:
  fs::path folder_;
};

TEST_F(CharLm, ComparesDenseAndInt8AndSaysSoInJson) {
  const Outcome outcome =
      run_ranks_of(2, "char_lm --steps 30 --lr 0.003 --link 10Gbit/s --json " + path("a.json") + kTiny + "--width 128");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("emulated"), std::string::npos) << outcome.output;
  const json report = read_json(path("a.json"));
  ASSERT_TRUE(report.is_object());
  EXPECT_TRUE(report.at("schema").is_string());
  EXPECT_TRUE(report.at("machine").contains("cpu"));
  const json& rows = report.at("rows");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("policy"), "dense");
  EXPECT_EQ(rows[1].at("policy"), "int8");
  for (const json& row : rows) {
    // A uniform guess among the characters of the licences costs about 4.5.
    EXPECT_LT(row.at("train_loss").get<double>(), 3.6);
    EXPECT_LT(row.at("held_out_loss").get<double>(), 3.8);
    EXPECT_GT(row.at("ms_per_step").get<double>(), 0);
    EXPECT_GT(row.at("exposed_comm_ms").get<double>(), 0);
    EXPECT_NE(row.at("transport").get<std::string>().find("emulated"), std::string::npos);
  }
  EXPECT_NEAR(rows[0].at("ratio").get<double>(), 1, 0.05);
  EXPECT_GT(rows[1].at("ratio_compressed").get<double>(), 3.3);
  EXPECT_LT(rows[1].at("bytes_sent_per_step").get<double>(), rows[0].at("bytes_sent_per_step").get<double>() / 3);
  const double dense = rows[0].at("held_out_loss").get<double>();
  const double int8 = rows[1].at("held_out_loss").get<double>();
  EXPECT_NEAR(int8, dense, 0.005 * dense);
  EXPECT_NE(int8, dense) << "int8 cannot give the same bits: nothing was compressed";
}

TEST_F(CharLm, SameSeedSameResult) {
  const std::string command = "char_lm --steps 5 --codec int8 --progress none" + kTiny + "--json ";
  ASSERT_EQ(run_ranks_of(2, command + path("a.json")).status, 0);
  ASSERT_EQ(run_ranks_of(2, command + path("b.json")).status, 0);
  ASSERT_EQ(run_ranks_of(2, command + path("c.json") + " --seed 2").status, 0);
  const auto loss = [&](const char* name) {
    return read_json(path(name)).at("rows").at(0).at("held_out_loss").get<double>();
  };
  EXPECT_EQ(loss("a.json"), loss("b.json"));
  EXPECT_NE(loss("a.json"), loss("c.json"));
}

// These are rows of a table of records: a control that freezes only the second moment, codecs, local steps. Mutations
// tried: the control is not frozen; `small` is not passed on; steps of the warm-up count as settled.
TEST_F(CharLm, NamesControlsAndLocalSteps) {
  const Outcome outcome = run_ranks_of(
      2,
      "char_lm --policies 'dense,dense+frozen,topk(1%)+int2,every(4),every(16)+topk(64/4096)+int2' --small 0 "
      "--lr 0.02 --steps 32 --warm-up 0.25 --precondition 0.02 --progress none --json " +
          path("a.json") + kTiny);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json rows = read_json(path("a.json")).at("rows");
  ASSERT_EQ(rows.size(), 5U);
  const auto number = [&](std::size_t row, const char* key) { return rows[row].at(key).get<double>(); };
  const char* bits = "bits_per_element_and_hop";
  EXPECT_NEAR(number(0, bits), 32, 0.01);
  EXPECT_EQ(number(1, bits), number(0, bits));
  EXPECT_NE(number(1, "held_out_loss"), number(0, "held_out_loss")) << "frozen";
  EXPECT_GT(number(2, bits), 0.1);
  EXPECT_LT(number(2, bits), 0.5) << "this includes headers of a small model's frames";
  EXPECT_GT(number(2, "bits_per_element_and_hop_in_whole"), 0.25 * 8) << "a quarter of the steps was int8";
  EXPECT_NEAR(number(3, bits), 32 / 4.0, 1);
  EXPECT_LT(number(4, bits), 0.5 / 16 * 1.2);
  EXPECT_GT(number(4, "bits_per_element_and_hop_in_whole"), 0.9 * 32 / 32) << "the last synchronisation is exact";
  EXPECT_EQ(number(2, "precondition"), 0.02);
  EXPECT_EQ(number(4, "precondition"), 0) << "changes of parameters have no scale";
  for (const json& row : rows) {
    EXPECT_EQ(row.at("learning_rate"), 0.02);
    EXPECT_EQ(row.at("steps"), 32);
    EXPECT_EQ(row.at("seed"), 1);
    EXPECT_GT(row.at("bytes_sent").get<double>(), 0);
    EXPECT_LT(row.at("held_out_loss").get<double>(), 4.3) << row.at("policy");
  }
}

TEST_F(CharLm, FollowsTheAdviceOnTheBatch) {
  std::ofstream(path("three.toml")) << "[batch]\nmin_accumulation = 3\nmax_accumulation = 3\nscaling = \"sqrt\"\n";
  const std::string command = "char_lm --steps 16 --progress none --evaluate-every 8" + kTiny + "--json ";
  ASSERT_EQ(run_ranks_of(2, command + path("a.json") + " --advised-batch --policy " + path("three.toml")).status, 0);
  ASSERT_EQ(run_ranks_of(2, command + path("b.json") + " --policies auto --link 10Mbit/s").status, 0);
  const json advised = read_json(path("a.json")).at("rows").at(0);
  EXPECT_EQ(advised.at("reductions"), 6) << "of 3, 3, 3, 3, 3 and 1 micro-steps";
  ASSERT_EQ(advised.at("advice").size(), 1U);
  EXPECT_EQ(advised.at("advice")[0].at("accumulation"), 3);
  EXPECT_NEAR(advised.at("advice")[0].at("learning_rate_factor").get<double>(), std::sqrt(3.0), 1e-12);
  ASSERT_EQ(advised.at("curve").size(), 2U);
  EXPECT_EQ(advised.at("curve")[0].at("micro_steps"), 9) << "this is the first step that ends at 8 or later";
  EXPECT_EQ(advised.at("curve")[1].at("micro_steps"), 16);
  EXPECT_GT(advised.at("curve")[0].at("bytes_sent").get<double>(), 0);
  EXPECT_DOUBLE_EQ(advised.at("curve")[1].at("bytes_sent").get<double>(), advised.at("bytes_sent").get<double>());
  const json chosen = read_json(path("b.json")).at("rows").at(0);
  EXPECT_EQ(chosen.at("reductions"), 16);
  EXPECT_TRUE(chosen.at("advice").empty());
  EXPECT_EQ(chosen.at("codecs").at(0).get<std::string>().substr(0, 6), "auto: ");
  EXPECT_FALSE(chosen.at("switches").empty());
}

TEST_F(CharLm, TheDefaultModelIsMadeOfLargeTensors) {
  const Outcome outcome = run_ranks_of(1, "char_lm --steps 1 --batch 1 --codec dense --json " + path("a.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json run = read_json(path("a.json")).at("run");
  EXPECT_GE(run.at("parameters").get<double>(), 1e6);
  EXPECT_LE(run.at("parameters").get<double>(), 3e6);
  EXPECT_GE(run.at("share_in_tensors_of_64KiB").get<double>(), 0.99);
}

TEST_F(CharLm, SavesGradientsOfThreePoints) {
  const Outcome outcome = run_ranks_of(
      2, "char_lm --steps 6 --codec int8 --save-gradients " + path("g") + " --json " + path("a.json") + kTiny);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  std::set<std::pair<std::string, std::uint64_t>> seen;
  double count = 0, squares = 0;
  for (const auto& gradient : record::list_file(path("g")).gradients) {
    EXPECT_TRUE(seen.insert({gradient.name, gradient.step}).second)
        << gradient.name << " twice in point " << gradient.step;
    EXPECT_LT(gradient.step, 3U);
    count += static_cast<double>(gradient.count);
    std::vector<float> values(gradient.count);
    record::GradientValues(gradient).read(0, gradient.count, values.data());
    for (const float x : values) {
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
  }
  EXPECT_EQ(count, 3 * read_json(path("a.json")).at("run").at("parameters").get<double>());
  EXPECT_GT(squares, 0);
  EXPECT_TRUE(std::isfinite(squares));

  fs::resize_file(path("g"), fs::file_size(path("g")) - 1);
  EXPECT_THROW(static_cast<void>(record::list_file(path("g"))), Error);
}

TEST_F(CharLm, TheDemoScriptRunsFromAnyFolder) {
  const Outcome outcome =
      run_program("cd / && RANKS=2 GRADWIRE_RESULTS='" + path("results") + std::string("' GRADWIRE_BIN='") +
                  GRADWIRE_BIN + "' '" + GRADWIRE_SOURCE_DIR +
                  "/python-free-examples/char_lm/demo' --steps 3 --link 10Gbit/s --json " + path("a.json") + kTiny);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(read_json(path("a.json")).at("run").at("link"), "emulated 10Gbit/s");
}

TEST_F(CharLm, BadInputIsNamed) {
  std::ofstream(path("small")) << "too short";
  std::ofstream(path("policy.toml")) << "version = 1\n[defaults]\ncodeck = \"int8\"\n";
  const std::pair<std::string, std::string> cases[] = {
      {"--text " + path("missing"), path("missing")},
      {"--text " + path("small"), "too few"},
      {"--codec int9", "int9"},
      {"--codec 'every(x)'", "every(x)"},
      {"--codec 'every(16)+int9'", "int9"},
      {"--codec 'every(8)+int8'", "16"},
      {"--codec dense+frozen", "--warm-up"},
      {"--codec int4 --decay 2", "decay is 2"},
      {"--codec int4 --second-hop int9", "int9"},
      {"--link fast", "fast"},
      {"--steps 0", "--steps"},
      {"--width 30", "--width"},
      {"--advised-batch --target-exposed 0", "--target-exposed"},
      {"--advised-batch --max-accumulation 0", "--max-accumulation"},
      {"--policy " + path("policy.toml"), "codeck"},
      {"--policy " + path("no.toml"), "no.toml"},
      {"--save-gradients " + path("no/folder"), "no/folder"},
      {"--json " + path("no/a.json") + " --codec int8", "no/a.json"},
  };
  int ranks = 2;  // of the first case: no rank is left behind. Others need no second rank.
  for (const auto& [arguments, named] : cases) {
    const Outcome outcome =
        run_ranks_of(std::exchange(ranks, 1), "char_lm --steps 1 --progress none" + kTiny + arguments);
    EXPECT_NE(outcome.status, 0) << arguments;
    EXPECT_NE(outcome.output.find(named), std::string::npos) << arguments << " says:\n" << outcome.output;
  }
}

}  // namespace
}  // namespace gradwire::test
