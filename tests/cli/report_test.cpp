// The table of a job's calls, from reports as they are and as they should not be.
#include "cli/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/report_json.hpp"
#include "gradwire/error.hpp"
#include "support/mutations.hpp"

namespace gradwire::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ReportTable : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }

  Report read(const std::string& text) {
    std::ofstream(file_) << text;
    return read_report(file_);
  }

  std::string replaced(std::string_view old, std::string_view by) {
    std::string text = test::kReport;
    text.replace(text.find(old), old.size(), by);
    return text;
  }

  const std::filesystem::path file_ =
      std::filesystem::temp_directory_path() / ("gradwire_report_test_" + std::to_string(::getpid()) + ".json");
};

TEST_F(ReportTable, ShowsEachClassTheLargestFirst) {
  const Report report = read(test::kReport);
  EXPECT_EQ(report.calls, 24U);
  EXPECT_EQ(report.compressed_calls, 12U);
  EXPECT_THAT(report.text, HasSubstr("gradwire 0.1.0, Open MPI 4.1.4, 4 ranks, policy built-in\n"));
  EXPECT_THAT(report.text, Not(HasSubstr("dry run")));
  EXPECT_THAT(report.text, Not(HasSubstr("passed through:")));
  const std::string large =
      "MPI_Allreduce +f32 +sum +16777216 +4 +0 +layer1\\.weight +12 +12 +int8 +- +768MiB +1.125GiB +290MiB +3\\.97. "
      "+2\\.5 s +-\n";
  const std::string small =
      "MPI_Allreduce +f32 +sum +8 +4 +1 +- +12 +0 +- +- +384B +576B +576B +1 +0\\.0005 s +below the floor\n";
  EXPECT_THAT(report.text, ContainsRegex(large + small));
  EXPECT_THAT(report.text,
              HasSubstr("calls: 24, compressed: 12; bytes in: 768MiB, sent: 290MiB instead of 1.125GiB\n"));
  EXPECT_THAT(report.text, HasSubstr("ratio: 3.974 on compressed calls, 3.972 over all"));
}

// Where the policy left it open also why; a report of an older gradwire has neither.
TEST_F(ReportTable, ShowsTheCollective) {
  const std::string named = read(replaced("\"codec\": \"int8\"", R"("codec": "int8", "algorithm": "two_shot",
      "algorithm_reason": null)"))
                                .text;
  EXPECT_THAT(named, ContainsRegex(" codec +collective +bytes in"));
  EXPECT_THAT(named, ContainsRegex("int8 +two_shot +768MiB"));
  EXPECT_THAT(named, Not(HasSubstr("by the cost model")));
  const std::string chosen = read(replaced("\"codec\": \"int8\"", R"("codec": "int8", "algorithm": "hierarchical",
      "algorithm_reason": "2 nodes of 2 ranks")"))
                                 .text;
  EXPECT_THAT(chosen, ContainsRegex("int8 +hierarchical +768MiB"));
  EXPECT_THAT(chosen, HasSubstr("collective by the cost model: hierarchical: 2 nodes of 2 ranks\n"));
}

TEST_F(ReportTable, ShowsWhatWasMeasured) {
  const auto row = [&](const std::string& measured) {
    return read(replaced("\"reason\": \"below the floor\"",
                         "\"reason\": \"no faster on this link\", \"measured\": " + measured))
        .text;
  };
  EXPECT_THAT(row(R"({"passed_seconds": 0.0007, "compressed_seconds": 0.0012})"),
              HasSubstr("no faster on this link (0.7 ms; compressed 1.2)\n"));
  EXPECT_THAT(row(R"({"passed_seconds": 0.0000162, "compressed_seconds": 0.0000261})"),
              HasSubstr("no faster on this link (16.2 us; compressed 26.1)\n"));
  EXPECT_THAT(row(R"({"passed_seconds": 0.0271, "compressed_seconds": 0.05})"),
              HasSubstr("no faster on this link (27.1 ms; compressed 50)\n"));
  EXPECT_THAT(row(R"({"passed_seconds": 0.016, "compressed_seconds": 0.000075})"),
              HasSubstr("no faster on this link (16 ms; compressed 0.075, not always faster)\n"));
  EXPECT_THAT(row("null"), HasSubstr("no faster on this link\n"));
}

TEST_F(ReportTable, LeadsWithWhatWasSavedWhereThatWasMeasured) {
  const auto with = [&](const std::string& measured) {
    return read(replaced("\"seconds\": 2.5, \"reason\": null",
                         "\"seconds\": 2.5, \"reason\": null, \"measured\": " + measured))
        .text;
  };
  EXPECT_THAT(with(R"({"passed_seconds": 0.175, "compressed_seconds": 0.035})"),
              StartsWith("compression saves 140 ms a call, 0.42 s of each rank's time (measured: 3 calls a rank, "));
  EXPECT_THAT(with(R"({"passed_seconds": 0.035, "compressed_seconds": 0.045})"),
              StartsWith("compression costs 10 ms a call, 0.03 s of each rank's time"));
  EXPECT_THAT(read(replaced("\"reason\": \"below the floor\"",
                            "\"reason\": \"no faster on this link\", \"measured\": "
                            R"({"passed_seconds": 0.0007, "compressed_seconds": 0.0012})"))
                  .text,
              StartsWith("compression saves nothing here, as measured"));
  EXPECT_THAT(with("null"), StartsWith("what compression saved was not measured: a codec that is named"));
  EXPECT_THAT(read(replaced("\"compressed_calls\": 12, \"bytes_in\": 805306752",
                            "\"compressed_calls\": 0, \"bytes_in\": 805306752"))
                  .text,
              StartsWith("gradwire 0.1.0"));
  EXPECT_THAT(read(replaced("\"dry_run\": false", "\"dry_run\": true")).text, StartsWith("gradwire 0.1.0"));
}

// As for calls that one class counts together: every number of elements, dtype and operation.
TEST_F(ReportTable, ShowsWhatAClassDoesNotHaveAsADash) {
  const Report report =
      read(replaced("\"dtype\": \"f32\", \"op\": \"sum\", \"count\": 8, \"communicator_size\": 4, \"order\": 1",
                    "\"dtype\": null, \"op\": null, \"count\": 0, \"communicator_size\": 4, \"order\": null"));
  EXPECT_THAT(report.text, ContainsRegex("MPI_Allreduce +- +- +- +4 +- +- +12 +0"));
}

TEST_F(ReportTable, SaysWhenItIsADryRunOrDisabled) {
  EXPECT_THAT(read(replaced("\"dry_run\": false", "\"dry_run\": true")).text,
              AllOf(HasSubstr("dry run: nothing was compressed"),
                    HasSubstr("\na run without --dry-run measures first, and then compresses only calls")));
  EXPECT_THAT(read(replaced("\"disabled\": null", "\"disabled\": \"GRADWIRE_DISABLE=1 on rank 2\"")).text,
              HasSubstr("every call is passed through: GRADWIRE_DISABLE=1 on rank 2\n"));
}

TEST_F(ReportTable, KeepsTheLargestOfVeryManyClasses) {
  std::string text = test::kReport;
  const std::size_t begin = text.find('[') + 1;
  const std::string small = text.substr(begin, text.find("},", begin) + 1 - begin);
  std::string many;
  for (int i = 0; i < 100; ++i) {
    many += small + ",";
  }
  const Report report = read(text.insert(begin, many));
  EXPECT_THAT(report.text, HasSubstr("and 62 classes of fewer bytes\n"));
  EXPECT_THAT(report.text, HasSubstr("layer1.weight"));
}

TEST_F(ReportTable, DamagedReportsAreRefused) {
  test::parse_mutations({test::kReport}, test::json_pieces({"\"calls\"", "\"dtype\": 7,"}), 161, 1000,
                        [&](const std::string& text) { static_cast<void>(read(text)); });
}

TEST_F(ReportTable, RefusesWhatIsNoReport) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("{\"totals\": 3}"),
        std::string(test::kReport).substr(0, 300), replaced("\"calls\": 24", "\"calls\": \"24\""),
        replaced("\"ratio\": 3.972,", ""), replaced("\"world\": 4", "\"world\": {}")}) {
    try {
      (void)read(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      EXPECT_THAT(error.what(), HasSubstr(file_.string() + " is no report of gradwire: "));
    }
  }
}

}  // namespace
}  // namespace gradwire::cli
