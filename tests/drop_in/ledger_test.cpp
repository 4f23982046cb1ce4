// Tests counting and reporting, and the settings that ranks exchange before anything is compressed.
#include "drop_in/ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "drop_in/configuration.hpp"
#include "tests/support/mutations.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::drop_in {
namespace {

using nlohmann::json;

CallClass compressed_class() {
  return {.function = Function::mpi_allreduce,
          .dtype = DType::f32,
          .op = "sum",
          .count = 1000,
          .communicator_size = 4,
          .order = 3,
          .codec = "int8"};
}

TEST(Ledger, RanksAddUp) {
  Ledger one;
  Ledger other;
  one.add(compressed_class(),
          {.calls = 1, .compressed_calls = 1, .bytes_in = 4000, .bytes_dense = 6000, .bytes_sent = 1500});
  other.add(
      compressed_class(),
      {.calls = 2, .compressed_calls = 2, .bytes_in = 8000, .bytes_dense = 12000, .bytes_sent = 3000, .seconds = 0.5});
  other.add({.function = Function::mpi_iallreduce, .communicator_size = 2, .reason = Reason::nonblocking},
            passed_totals(Function::mpi_iallreduce, 5, 1000, 2));
  other.count_reset();
  one.merge(other.to_text());
  EXPECT_EQ(one.resets(), 1U);
  const Ledger::Classes classes = one.classes();
  ASSERT_EQ(classes.size(), 2U);
  const CallTotals& all = classes.at(compressed_class());
  EXPECT_EQ(all.calls, 3U);
  EXPECT_EQ(all.compressed_calls, 3U);
  EXPECT_EQ(all.bytes_in, 12000U);
  EXPECT_EQ(all.ratio(), 4.0);
  EXPECT_EQ(all.seconds, 0.5);
}

TEST(Ledger, WhatWasMeasuredAndChosenTravelsToo) {
  const CommunicatorName name{.ranks = 7, .size = 4, .first = 0, .number = 1};
  const Choices choices{{{.function = Function::mpi_allreduce, .dtype = DType::f32, .size = 20}, {{0, 0}, {1, 1}}}};
  CallClass passed = compressed_class();
  passed.codec.clear();
  passed.reason = Reason::no_faster;
  Ledger one;
  Ledger other;
  one.add(passed, {.calls = 1});
  other.add(passed, {.calls = 2, .measured = CallTotals::Measured{.passed = 0.5, .compressed = 0.75}});
  other.add_choices(name, choices);
  one.merge(other.to_text());
  EXPECT_EQ(one.choices(), (ChoicesOfJob{{name, choices}}));
  const json row = json::parse(report_json({}, one)).at("classes").at(0);
  EXPECT_EQ(row.at("measured"), (json{{"passed_seconds", 0.5}, {"compressed_seconds", 0.75}}));
  EXPECT_EQ(row.at("reason"), "no faster on this link");
  EXPECT_EQ(row.at("calls"), 3);
}

TEST(Ledger, TheCollectiveTravelsToo) {
  Ledger one;
  Ledger other;
  one.add(compressed_class(), {.calls = 1, .compressed_calls = 1});
  other.add(compressed_class(), {.calls = 1, .compressed_calls = 1, .algorithm = "hierarchical: 2 nodes of 2 ranks"});
  one.merge(other.to_text());
  const json row = json::parse(report_json({}, one)).at("classes").at(0);
  EXPECT_EQ(row.at("algorithm"), "hierarchical");
  EXPECT_EQ(row.at("algorithm_reason"), "2 nodes of 2 ranks");
  Ledger named;
  named.add(compressed_class(), {.calls = 1, .compressed_calls = 1, .algorithm = "two_shot"});
  const json plain = json::parse(report_json({}, named)).at("classes").at(0);
  EXPECT_EQ(plain.at("algorithm"), "two_shot");
  EXPECT_TRUE(plain.at("algorithm_reason").is_null());
}

TEST(Ledger, LossyCallsAndTheirLargestErrorTravelToo) {
  Ledger one;
  Ledger other;
  one.add(compressed_class(), {.calls = 1, .compressed_calls = 1, .lossy_calls = 1, .largest_error = 0.25});
  one.add(compressed_class(), {.calls = 1, .compressed_calls = 1, .lossy_calls = 1});
  other.add(compressed_class(), {.calls = 1, .compressed_calls = 1, .lossy_calls = 1, .largest_error = 0.125});
  one.merge(other.to_text());
  const json report = json::parse(report_json({}, one));
  for (const json& row : {report.at("classes").at(0), report.at("totals")}) {
    EXPECT_EQ(row.at("lossy_calls"), 3);
    EXPECT_EQ(row.at("largest_error"), 0.25);
  }
  Ledger none;
  none.add(compressed_class(), {.calls = 1, .compressed_calls = 1});
  one.merge(none.to_text());
  EXPECT_TRUE(json::parse(report_json({}, none)).at("classes").at(0).at("largest_error").is_null());
}

TEST(Ledger, TheReportSaysAll) {
  Ledger ledger;
  ledger.add(compressed_class(),
             {.calls = 1, .compressed_calls = 1, .bytes_in = 4000, .bytes_dense = 6000, .bytes_sent = 1500});
  ledger.add({.function = Function::mpi_allreduce, .communicator_size = 4, .reason = Reason::below_floor},
             passed_totals(Function::mpi_allreduce, 10, 800, 4));
  const json report = json::parse(report_json(
      {.world_size = 4, .implementation = "Open MPI 4.1.4", .policy = "built-in", .disabled = "", .note = "part \xff"},
      ledger));
  EXPECT_EQ(report.at("world"), 4);
  EXPECT_EQ(report.at("library"), "Open MPI 4.1.4");
  EXPECT_FALSE(report.at("dry_run"));
  EXPECT_TRUE(report.at("disabled").is_null());
  EXPECT_TRUE(report.at("emulated_link").is_null());
  const json& totals = report.at("totals");
  EXPECT_EQ(totals.at("calls"), 11);
  EXPECT_EQ(totals.at("compressed_calls"), 1);
  EXPECT_EQ(totals.at("bytes_dense"), 7200);
  EXPECT_EQ(totals.at("bytes_sent"), 2700);
  EXPECT_EQ(totals.at("ratio_compressed"), 4.0);
  EXPECT_NEAR(totals.at("ratio"), 7200.0 / 2700, 1e-9);
  ASSERT_EQ(report.at("classes").size(), 2U);
  for (const json& row : report.at("classes")) {
    const bool is_compressed = row.at("reason").is_null();
    EXPECT_EQ(row.at("function"), "MPI_Allreduce");
    EXPECT_EQ(row.at("codec"), is_compressed ? json("int8") : json());
    EXPECT_EQ(row.at("order"), is_compressed ? json(3) : json());
    EXPECT_EQ(row.at("dtype"), is_compressed ? json("f32") : json());
  }
}

// Mutations tried: the report is opened in place; a pipe is opened like a file, and then nothing ends.
TEST(Ledger, AReportReplacesALinkAndWaitsForNoPipe) {
  const gradwire::test::ScratchFolder folder;
  std::ofstream(folder.file("victim")) << "mine";
  std::filesystem::create_symlink(folder.file("victim"), folder.file("calls.json"));
  EXPECT_EQ(write_report(folder.file("calls.json"), "{}"), std::nullopt);
  EXPECT_EQ(gradwire::test::read_text(folder.file("victim")), "mine");
  EXPECT_EQ(gradwire::test::read_text(folder.file("calls.json")), "{}");
  ASSERT_EQ(::mkfifo(folder.file("pipe.json").c_str(), 0600), 0);
  const auto problem = write_report(folder.file("pipe.json"), "{}");
  ASSERT_TRUE(problem);
  EXPECT_THAT(*problem,
              ::testing::HasSubstr("the report is lost: " + folder.file("pipe.json") + ": cannot be written"));
}

// The disk has room for only half of the report.
TEST(Ledger, HalfAReportIsTakenBack) {
  const gradwire::test::ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto problem = write_report(folder.file("calls-1.json"), std::string(1000, 'x'));
    std::_Exit(problem && problem->find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "calls-1.json"));
  EXPECT_EQ(write_report(folder.file("calls-1.json"), "{}"), std::nullopt);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "calls-1.json"));
}

TEST(Ledger, ClassesAreBounded) {
  Ledger ledger;
  for (std::uint64_t count = 1; count <= 3 * Ledger::kMostClasses; ++count) {
    CallClass what = compressed_class();
    what.count = count;
    ledger.add(what, {.calls = 1});
  }
  EXPECT_EQ(ledger.classes().size(), Ledger::kMostClasses + 1);
  std::uint64_t calls = 0;
  for (const auto& [what, totals] : ledger.classes()) {
    calls += totals.calls;
  }
  EXPECT_EQ(calls, 3 * Ledger::kMostClasses);
}

std::vector<RankSettings> all(std::size_t ranks) { return std::vector<RankSettings>(ranks, RankSettings::of({})); }

TEST(AgreedSettings, EqualRanksAgree) {
  const AgreedSettings agreement = agree(all(4));
  EXPECT_FALSE(agreement.disabled || agreement.ranks_differ || agreement.dry_run);
  EXPECT_TRUE(agreement.warning().empty());
  EXPECT_EQ(agreement.mode, Mode::observing) << "no codec was named";
}

TEST(Ledger, TheSummaryNamesTheMainReasonWhereNothingWasCompressed) {
  Ledger ledger;
  ledger.add({.function = Function::mpi_allreduce, .reason = Reason::below_floor}, {.calls = 9, .bytes_in = 72});
  ledger.add({.function = Function::mpi_allreduce, .reason = Reason::learning}, {.calls = 2, .bytes_in = 8192});
  EXPECT_EQ(report_summary(ReportHead(), ledger),
            "0 of 11 calls compressed; main reason: step not known yet (error_feedback = \"off\", as by "
            "--no-feedback, compresses them)");
  EXPECT_EQ(
      report_summary({.has_session = true}, ledger),
      "the job's own session sends its gradients; the drop-in saw 11 collective calls of MPI, and compressed none");
  ledger.add({.function = Function::mpi_allreduce, .codec = "int8"},
             {.calls = 1, .compressed_calls = 1, .bytes_in = 4096, .bytes_dense = 4096, .bytes_sent = 1024});
  EXPECT_TRUE(report_summary(ReportHead(), ledger).starts_with("1 of 12 calls compressed, 1KiB sent for 4KiB"));
}

TEST(Ledger, WithAKeyPassedCallsAreInClearText) {
  Ledger ledger;
  ledger.add({.function = Function::mpi_allreduce, .codec = "int8"},
             {.calls = 1, .compressed_calls = 1, .bytes_in = 4096, .bytes_dense = 4096, .bytes_sent = 1024});
  EXPECT_TRUE(report_summary({.has_key = true}, ledger).ends_with("; all encrypted"));
  ledger.add({.function = Function::mpi_allreduce, .reason = Reason::below_floor}, {.calls = 9, .bytes_in = 72});
  ledger.add({.function = Function::mpi_reduce, .reason = Reason::learning}, {.calls = 2, .bytes_in = 1976});
  EXPECT_TRUE(report_summary({.has_key = true}, ledger).ends_with("; in clear text: 11 calls of 2KiB"))
      << report_summary({.has_key = true}, ledger);
  EXPECT_EQ(report_summary({}, ledger).find("clear text"), std::string::npos);
  const auto totals = json::parse(report_json({.has_key = true}, ledger)).at("totals");
  EXPECT_EQ(totals.at("in_clear_text").at("calls"), 11);
  EXPECT_EQ(totals.at("in_clear_text").at("bytes"), 2048);
}

TEST(Ledger, TellsWhatWasCompressedSoFar) {
  Ledger ledger;
  EXPECT_EQ(status_text(ledger), "0 calls compressed, 0B sent for 0B, ratio 1");
  ledger.add({.function = Function::mpi_allreduce, .codec = "int8"},
             {.calls = 3, .compressed_calls = 3, .bytes_in = 1024, .bytes_dense = 4096, .bytes_sent = 1024});
  ledger.add({.function = Function::mpi_allreduce, .reason = Reason::no_faster},
             {.calls = 9, .bytes_in = 1024, .bytes_dense = 4096, .bytes_sent = 4096});
  EXPECT_EQ(status_text(ledger), "3 calls compressed, 1KiB sent for 4KiB, ratio 4");
  EXPECT_FALSE(ledger.nonfinite());
}

TEST(AgreedSettings, OneDisabledDisables) {
  Configuration configuration;
  configuration.disabled = "GRADWIRE_DISABLE=1";
  configuration.mode = Mode::disabled;
  std::vector<RankSettings> ranks = all(4);
  ranks[2] = RankSettings::of(configuration);
  const AgreedSettings agreement = agree(ranks);
  EXPECT_TRUE(agreement.disabled);
  EXPECT_NE(agreement.warning().find("disabled on rank 2 (GRADWIRE_DISABLE=1)"), std::string::npos)
      << agreement.warning();
}

TEST(AgreedSettings, AnyDifferenceIsOne) {
  std::vector<Configuration> others(3);
  others[0].planner = plan::CallPlanner(Policy::uniform("bf16"));
  others[1].dry_run = true;
  others[2].mode = Mode::compressing;
  for (const Configuration& other : others) {
    std::vector<RankSettings> ranks = all(3);
    ranks[1] = RankSettings::of(other);
    const AgreedSettings agreement = agree(ranks);
    EXPECT_TRUE(agreement.ranks_differ);
    EXPECT_EQ(agreement.mode, Mode::disabled);
    const char* rank = other.mode == Mode::observing ? "rank 1 only observes, policy" : "rank 1 has policy";
    EXPECT_NE(agreement.warning().find(rank), std::string::npos) << agreement.warning();
  }
  std::vector<RankSettings> ranks = all(3);
  ranks[1].magic[3] = '9';  // a different version
  EXPECT_TRUE(agree(ranks).ranks_differ);
}

TEST(AgreedSettings, RanksAreNamedInShort) {
  const std::vector<int> ranks = {1, 4, 7, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(name_ranks(std::span(ranks).first(1)), "rank 1");
  EXPECT_EQ(name_ranks(std::span(ranks).first(3)), "ranks 1, 4 and 7");
  EXPECT_EQ(name_ranks(ranks), "ranks 1, 4, 7, 9, 10, 11, 12, 13 and 2 more");
}

// Files of other ranks and earlier jobs may be damaged.
TEST(Choices, DamagedFilesAreRefused) {
  Choices classes;
  classes[{.function = Function::mpi_allreduce, .size = 20}] = {{0, 0}, {3, 1}, {9, 0}};
  ChoicesOfJob choices;
  choices[{.ranks = 12345, .size = 4, .first = 0, .number = 2}] = classes;
  test::parse_mutations({choices_to_text(choices, "p")}, test::json_pieces({"\"way\"", "MPI_Allreduce"}), 151, 4000,
                        [](const std::string& text) { static_cast<void>(choices_from_text(text, "p")); });
}

}  // namespace
}  // namespace gradwire::drop_in
