// Tests metrics of a job under the preload (GRADWIRE_METRICS).
#include <regex>
#include <set>

#include "tests/mpi_preload/preload.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

// The text of a rank's file, with the name that the launcher gives its job; empty where there is none.
std::string file_of(const std::filesystem::path& folder, int rank, const std::string& suffix = ".prom") {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("gradwire-mpi-rank-" + std::to_string(rank) + "-job-") && name.ends_with(suffix)) {
      return read_text(entry.path());
    }
  }
  return "";
}

std::set<std::string> jobs_in(const std::filesystem::path& folder) {
  std::set<std::string> jobs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (const std::size_t at = name.find("-job-"); at != std::string::npos) {
      jobs.insert(name.substr(at));
    }
  }
  return jobs;
}

bool whole(const std::string& text) { return text.ends_with("\n# EOF\n"); }

// Returns the sum of a metric's samples that have `label`.
double sum_in(const std::string& text, const std::string& metric, const std::string& label = "") {
  double sum = 0;
  const std::regex line("\n" + metric + R"(\{[^\n]*)" + label + R"([^\n]*\} (\S+))");
  for (std::sregex_iterator match(text.begin(), text.end(), line), end; match != end; ++match) {
    sum += std::stod((*match)[1]);
  }
  return sum;
}

// Mutation tried: names do not include the world's; then there are two files instead of four, and one report of the
// two.
TEST_P(Preload, SpawnedWorldsHaveFilesOfTheirOwn) {
  if (GetParam().name != "OpenMpi") {
    GTEST_SKIP() << "MPICH of Debian 12 and Ubuntu cannot spawn";
  }
  const ScratchFolder folder;
  const std::string to = folder.path().string();
  const Outcome outcome =
      run_program(GetParam().launch + " 2 --mca mca_base_env_list 'LD_PRELOAD=" + GetParam().drop_in +
                  ";GRADWIRE_CODEC=int8;GRADWIRE_METRICS=file:" + to + ";GRADWIRE_REPORT=" + to +
                  "/calls.json' '" GRADWIRE_BIN "/open_mpi_spawn_job'");
  expect_ok(outcome, "spawn");
  std::vector<std::string> metrics;
  std::vector<std::string> reports;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    (entry.path().extension() == ".json" ? reports : metrics).push_back(entry.path().filename().string());
  }
  EXPECT_EQ(metrics.size(), 4U) << outcome.output;
  EXPECT_EQ(reports.size(), 2U) << outcome.output;
  const auto spawned = [](const std::string& name) { return name.find("-spawned-") != std::string::npos; };
  EXPECT_EQ(std::count_if(metrics.begin(), metrics.end(), spawned), 2);
  EXPECT_EQ(std::count_if(reports.begin(), reports.end(), spawned), 1);
  EXPECT_EQ(jobs_in(folder.path()).size(), 1U) << "both worlds belong to one job";
}

TEST_P(Preload, MetricsOfAllRanksAreWhatTheReportSays) {
  const ScratchFolder folder;
  const Outcome outcome = with(3, preload() + " GRADWIRE_METRICS='file:" + folder.path().string() + "'", "compressed");
  expect_ok(outcome, "compressed");
  double calls = 0;
  double compressed = 0;
  double sent = 0;
  double uncompressed = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = file_of(folder.path(), rank);
    ASSERT_TRUE(whole(text)) << outcome.output;
    calls += sum_in(text, "gradwire_replaced_calls_total");
    compressed += sum_in(text, "gradwire_replaced_calls_total", "outcome=\"compressed\"");
    sent += sum_in(text, "gradwire_replaced_bytes_sent_total", "outcome=\"compressed\"");
    uncompressed += sum_in(text, "gradwire_replaced_bytes_uncompressed_total");
    // The executor recorded the messages of compressed calls.
    EXPECT_GE(sum_in(text, "gradwire_message_bytes_sum", "direction=\"sent\"") +
                  sum_in(text, "gradwire_message_bytes_sum", "direction=\"native\""),
              sum_in(text, "gradwire_replaced_bytes_sent_total", "outcome=\"compressed\""));
    EXPECT_EQ(sum_in(text, "gradwire_job_ended"), 1);
    EXPECT_EQ(sum_in(text, "gradwire_world_size"), 3);
    EXPECT_EQ(sum_in(text, "gradwire_events_dropped_total"), 0);
  }
  const json totals = report().at("totals");
  EXPECT_EQ(calls, totals.at("calls").get<double>());
  EXPECT_EQ(uncompressed, totals.at("bytes_dense").get<double>());
  EXPECT_EQ(compressed, totals.at("compressed_calls").get<double>());
  EXPECT_EQ(compressed, 33);
  EXPECT_EQ(sent, totals.at("bytes_sent").get<double>()) << totals;
  EXPECT_EQ(jobs_in(folder.path()).size(), 1U) << "all ranks have the name that their launcher gives them";
}

// A directory has the histories of all ranks, and rank 0's report of the calls.
TEST_P(Preload, HistoriesOfAllRanksAreWhatTheReportSays) {
  const ScratchFolder folder;
  const std::filesystem::path directory = folder.path() / "made" / "here";
  const Outcome outcome = with(3, preload() + " GRADWIRE_REPORT='" + directory.string() + "'", "compressed");
  expect_ok(outcome, "compressed");
  double calls = 0;
  double sent = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const json history = json::parse(file_of(directory, rank, ".history"), nullptr, false);
    ASSERT_FALSE(history.is_discarded()) << outcome.output;
    EXPECT_EQ(history.at("world"), 3);
    EXPECT_EQ(history.at("ended"), true);
    calls += history.at("samples").at("compressed_calls").back().get<double>();
    sent += history.at("samples").at("compressed_bytes_sent").back().get<double>();
  }
  json report;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with("calls-")) {
      report = json::parse(read_text(entry.path()), nullptr, false);
    }
  }
  ASSERT_TRUE(report.is_object()) << outcome.output;
  EXPECT_EQ(calls, report.at("totals").at("compressed_calls").get<double>());
  EXPECT_EQ(sent, report.at("totals").at("bytes_sent").get<double>());
  EXPECT_TRUE(contains(outcome, "gradwire report " + directory.string())) << outcome.output;
}

// Mutation tried: observe_process() gets no size of the world; then an observed job is one of one rank.
TEST_P(Preload, HistoriesOfAnObservedJobKnowItsWorld) {
  const ScratchFolder folder;
  const std::string to = folder.path().string();
  const Outcome outcome =
      with(3, observing() + " GRADWIRE_REPORT='" + to + "' GRADWIRE_METRICS='file:" + to + "'", "equal_layers");
  expect_ok(outcome, "equal_layers");
  for (int rank = 0; rank < 3; ++rank) {
    const json history = json::parse(file_of(folder.path(), rank, ".history"), nullptr, false);
    ASSERT_FALSE(history.is_discarded()) << outcome.output;
    EXPECT_EQ(history.at("world"), 3);
    EXPECT_EQ(sum_in(file_of(folder.path(), rank), "gradwire_world_size"), 3);
  }
}

TEST_P(Preload, AJobThatNeverFinalizesLeavesItsMetrics) {
  const ScratchFolder folder;
  static_cast<void>(with(3, preload() + " GRADWIRE_METRICS='file:" + folder.path().string() + "'", "early_exit"));
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = file_of(folder.path(), rank);
    EXPECT_TRUE(text.empty() || whole(text)) << text;  // empty if the job was over before the first file
  }
}

TEST_P(Preload, MetricsThatCannotBeWrittenAreOneWarningARank) {
  for (const char* value : {"file:/proc/nothing/here", "here"}) {
    const Outcome outcome = with(2, preload() + " GRADWIRE_METRICS=" + value, "compressed");
    expect_ok(outcome, "compressed");
    int warnings = 0;
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) {
      warnings += line.find("GRADWIRE_METRICS") != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(warnings, 2) << outcome.output;
    EXPECT_EQ(compressed_calls(report()), 22U);
  }
}

}  // namespace
}  // namespace gradwire::test
