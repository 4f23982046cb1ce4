// Tests the table of a job's calls, made from valid and invalid reports.
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
using ::testing::EndsWith;
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

TEST_F(ReportTable, CountsCallsInClearTextWhereTheJobHasAKey) {
  EXPECT_THAT(read(test::kReport).text, AllOf(Not(HasSubstr("clear text")), HasSubstr("all ranks); not encrypted\n")));
  const Report report =
      read(replaced("\"totals\": {", "\"totals\": { \"in_clear_text\": { \"calls\": 12, \"bytes\": 384 },"));
  EXPECT_THAT(report.text, HasSubstr("\nin clear text: 12 calls, 384B; the compressed ones were encrypted\nratio: "));
  EXPECT_THAT(report.text, Not(HasSubstr("not encrypted")));
}

TEST_F(ReportTable, ShowsEachClassTheLargestFirst) {
  const Report report = read(test::kReport);
  EXPECT_EQ(report.calls, 24U);
  EXPECT_EQ(report.compressed_calls, 12U);
  EXPECT_THAT(report.text, HasSubstr("gradwire 0.1.0, Open MPI 4.1.4, 4 ranks, compressing, policy built-in\n"));
  EXPECT_THAT(report.text, Not(HasSubstr("dry run")));
  EXPECT_THAT(report.text,
              HasSubstr("\ntime: of all calls of all ranks together, with the wait for ranks that call later\n"));
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

// If the policy left the algorithm open, the table also shows why it was chosen; an older report has neither.
TEST_F(ReportTable, ShowsTheAlgorithm) {
  const std::string named = read(replaced("\"codec\": \"int8\"", R"("codec": "int8", "algorithm": "two_shot",
      "algorithm_reason": null)"))
                                .text;
  EXPECT_THAT(named, HasSubstr("4 ranks, compressing, policy built-in\n"));
  EXPECT_THAT(named, ContainsRegex(" lossy codec +algorithm +bytes in"));
  EXPECT_THAT(named, HasSubstr("\norder: place of a call in its step; algorithm: how ranks exchange"));
  EXPECT_THAT(named, ContainsRegex("int8 +two_shot +768MiB"));
  EXPECT_THAT(named, Not(HasSubstr("by the cost model")));
  const std::string chosen = read(replaced("\"codec\": \"int8\"", R"("codec": "int8", "algorithm": "hierarchical",
      "algorithm_reason": "2 nodes of 2 ranks")"))
                                 .text;
  EXPECT_THAT(chosen, ContainsRegex("int8 +hierarchical +768MiB"));
  EXPECT_THAT(chosen, HasSubstr("algorithm by the cost model: hierarchical: 2 nodes of 2 ranks\n"));
}

TEST_F(ReportTable, SaysThatTheLinkIsEmulated) {
  EXPECT_THAT(read(test::kReport).text, Not(HasSubstr("emulated")));
  EXPECT_THAT(read(replaced("\"dry_run\"", R"("emulated_link": "1Gbit/s", "dry_run")")).text,
              HasSubstr("4 ranks, compressing, policy built-in, emulated 1Gbit/s\n"));
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

// A class counts together calls with any number of elements, dtype and operation, so it has none of these.
TEST_F(ReportTable, ShowsWhatAClassDoesNotHaveAsADash) {
  const Report report =
      read(replaced("\"dtype\": \"f32\", \"op\": \"sum\", \"count\": 8, \"communicator_size\": 4, \"order\": 1",
                    "\"dtype\": null, \"op\": null, \"count\": 0, \"communicator_size\": 4, \"order\": null"));
  EXPECT_THAT(report.text, ContainsRegex("MPI_Allreduce +- +- +- +4 +- +- +12 +0"));
}

TEST_F(ReportTable, SaysWhenItIsADryRunOrDisabled) {
  EXPECT_THAT(read(replaced("\"dry_run\": false", "\"dry_run\": true")).text,
              AllOf(HasSubstr("4 ranks, observing, policy built-in; dry run: nothing was compressed"),
                    HasSubstr("\nno codec was named: these are the bytes of int8; without --dry-run nothing is")));
  std::string automatic = replaced("\"dry_run\": false", "\"dry_run\": true");
  automatic.replace(automatic.find("built-in"), 8, "GRADWIRE_CODEC=auto");
  EXPECT_THAT(read(automatic).text, HasSubstr("\na run without --dry-run compares first, and then compresses only"));
  EXPECT_THAT(
      read(replaced("\"disabled\": null", "\"disabled\": \"GRADWIRE_DISABLE=1 on rank 2\"")).text,
      AllOf(HasSubstr("4 ranks, disabled, policy built-in"),
            HasSubstr("every call is passed through: GRADWIRE_DISABLE=1 on rank 2\n"), HasSubstr("\ncalls: 24, ")));
  std::string uncounted = replaced("\"disabled\": null", "\"disabled\": \"GRADWIRE_DISABLE=1 on rank 2\"");
  uncounted.replace(uncounted.find("\"calls\": 24"), 11, "\"calls\": 0");
  EXPECT_THAT(read(uncounted).text,
              EndsWith("GRADWIRE_DISABLE=1 on rank 2\nA disabled drop-in does not count calls, so "
                       "there is no table.\n"));
}

// Mutations tried: a forecast says "measured"; a saving is shown although none is known.
TEST_F(ReportTable, AForecastIsNoMeasurement) {
  const auto with = [&](const std::string& saved, const std::string& of_all,
                        const std::string& library = "Open MPI 4.1.4") {
    std::string text = replaced("\"codec\": \"int8\", \"calls\": 12, \"compressed_calls\": 12",
                                "\"codec\": null, \"calls\": 12, \"compressed_calls\": 0");
    text.replace(text.find("\"compressed_calls\": 12, \"bytes_in\": 805306752"), 22, "\"compressed_calls\": 0");
    text.replace(text.rfind("\"reason\": null"), 14, "\"reason\": \"observed: no codec was named\"");
    text.replace(text.find("Open MPI 4.1.4"), 14, library);
    text.replace(text.rfind('}'), 1,
                 R"(, "forecast": { "saved_seconds": )" + of_all + R"(, "run_seconds": 100,
      "cost_seconds": 0.25, "classes": [
      { "function": "MPI_Allreduce", "dtype": "f32", "size_class": 26, "communicator_size": 4, "codec": "int8",
        "calls": 12, "bytes": 67108864, "passed_seconds": 0.9, "forecast_seconds": 0.25,
        "forecast_saved_seconds": )" +
                     saved + R"(, "ratio": 3.97, "relative_error": 0.0071, "zeroed_share": 0.02,
        "small_nmse": null } ] } })");
    return read(text);
  };
  const Report gains = with("0.65", "7.8");
  EXPECT_TRUE(gains.observed);
  EXPECT_THAT(gains.text,
              StartsWith("forecast: compression would save 650 ms a call, 1.95 s of each rank's time (3 calls "
                         "a rank): gradwire run --codec auto -- ...\n"));
  EXPECT_THAT(gains.text, HasSubstr("4 ranks, observing, policy built-in\n"));
  EXPECT_THAT(gains.text, HasSubstr("observing took 0.25% of the run"));
  EXPECT_THAT(gains.text,
              ContainsRegex("MPI_Allreduce +f32 +64MiB +4 +12 +int8 +900 ms +250 ms +3\\.97 +0\\.71% +2% +-\n"));
  EXPECT_THAT(gains.text, HasSubstr("\ntime of a call: of the library, where it waited little;"));
  EXPECT_THAT(gains.text, Not(HasSubstr("measured")));
  EXPECT_THAT(with("0", "0").text, StartsWith("forecast: compression would save nothing here, so gradwire run --codec "
                                              "auto -- ... would pass these calls on\n"));
  EXPECT_THAT(with("0.65", "7.8", "c10d").text,
              StartsWith("forecast: compression would save 650 ms a call, 7.8 s of each rank's time (12 calls a rank)"))
      << "PyTorch's numbers come from rank 0 alone";
  const Report unknown = with("null", "null");
  EXPECT_THAT(unknown.text, StartsWith("no codec was named, so every call was the library's own; to compress: gradwire "
                                       "run --codec auto -- ...\n"));
  EXPECT_FALSE(read(test::kReport).observed);
}

TEST_F(ReportTable, SaysWhyNothingWasMeasured) {
  const auto because = [&](const std::string& reason, const std::string& policy = "GRADWIRE_CODEC=auto") {
    std::string text = replaced("below the floor", reason);
    return read(text.replace(text.find("built-in"), 8, policy)).text;
  };
  EXPECT_THAT(because("being measured"),
              StartsWith("what compression saves is not known: too few calls were compared."));
  EXPECT_THAT(because("being measured"), Not(HasSubstr("is named")));
  EXPECT_THAT(because("passed in the recorded job"),
              StartsWith("what compression saved was not measured: the choices were recorded by an earlier job"));
  EXPECT_THAT(because("below the floor", "GRADWIRE_CODEC=int8"),
              StartsWith("what compression saved was not measured: a codec that is named is not compared; auto"));
}

TEST_F(ReportTable, AdvisesWhatTheUserCanDo) {
  EXPECT_THAT(read(replaced("below the floor", "step not known yet")).text, HasSubstr("`gradwire run --no-feedback`"));
  std::string doubles = replaced("below the floor", "type is not compressed");
  EXPECT_THAT(read(doubles).text, Not(HasSubstr("--f64"))) << "f32 needs no advice";
  doubles.replace(doubles.find("\"dtype\": \"f32\""), 14, "\"dtype\": \"f64\"");
  EXPECT_THAT(read(doubles).text, HasSubstr("`gradwire run --f64`, or a rule with dtype = \"f64\" in a policy"));
  EXPECT_THAT(read(test::kReport).text, Not(HasSubstr("--no-feedback")));
}

TEST_F(ReportTable, CountsLossyCallsApart) {
  const auto with = [&](const std::string& fields) {
    return read(replaced("\"ratio_compressed\": 3.9735", "\"ratio_compressed\": 3.9735, " + fields)).text;
  };
  EXPECT_THAT(with(R"("lossy_calls": 12, "largest_error": 0.0071)"),
              HasSubstr("; lossy calls: 12, largest sampled relative error 0.71%\n"));
  EXPECT_THAT(with(R"("lossy_calls": 12, "largest_error": null)"), HasSubstr("; lossy calls: 12, no error sampled\n"));
  EXPECT_THAT(with(R"("lossy_calls": 0, "largest_error": null)"), Not(HasSubstr("lossy calls")));
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
