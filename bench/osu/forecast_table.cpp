// forecast_table shows the forecast of an observed job's report beside the times with codec auto in the same program.
#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/text_table.hpp"

namespace gradwire::bench {
namespace {

Json read(const std::string& file, const char* key) {
  std::ifstream stream(file);
  Json report = Json::parse(stream, nullptr, false);
  if (report.is_discarded() || !report.contains(key)) {
    throw std::runtime_error(file + " has no \"" + key + "\"; run bench/osu/forecast, which makes what is read here");
  }
  return report;
}

double microseconds(const Json& seconds) { return seconds.get<double>() * 1e6; }

// Returns the microseconds of a call of `bytes` under auto, or 0.
double took(const Json& auto_run, double bytes) {
  for (const Json& row : auto_run["rows"]) {
    if (row["bytes"].get<double>() == bytes) {
      return row["us"].get<double>();
    }
  }
  return 0;
}

int make(const std::string& observed, const std::string& auto_run, const std::string& where, const std::string& json,
         const std::string& markdown) {
  const Json forecast = read(observed, "forecast")["forecast"];
  const Json measured = read(auto_run, "rows");
  if (forecast.is_null()) {
    throw std::runtime_error(observed + " holds no forecast: no call was observed that a codec could compress");
  }
  Json report = make_report("gradwire.forecast_table.1");
  report["where"] = where;
  TextTable table({"bytes", "library us", "codec", "forecast us", "auto us", "forecast / auto"});
  std::vector<Json> classes = forecast["classes"];  // sorted by calls, most first
  std::sort(classes.begin(), classes.end(),
            [](const Json& a, const Json& b) { return a["bytes"].get<double>() < b["bytes"].get<double>(); });
  for (const Json& row : classes) {
    const double bytes = row["bytes"].get<double>();
    const double us = took(measured, bytes);
    if (us <= 0 || row["forecast_seconds"].is_null()) {
      continue;
    }
    const double said = microseconds(row["forecast_seconds"]);
    const std::string codec = row["codec"].is_string() ? row["codec"].get<std::string>() : "-";
    report["rows"].push_back({{"bytes", bytes},
                              {"library_us", microseconds(row["passed_seconds"])},
                              {"codec", codec},
                              {"forecast_us", said},
                              {"auto_us", us},
                              {"ratio", said / us}});
    table.add({fixed(bytes, 0), fixed(microseconds(row["passed_seconds"]), 0), codec, fixed(said, 0), fixed(us, 0),
               fixed(said / us, 2)});
  }
  const std::string head =
      "What an observed job forecasts for MPI_Allreduce, and what it then takes under codec auto, " + where + ":\n";
  publish(head, table, {markdown, json}, report);
  return 0;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program("forecast_table", [&] {
    std::string observed;
    std::string auto_run;
    std::string where = "hosts of the lab";
    std::string json;
    std::string markdown;
    gradwire::bench::CommandLine line{"Compares a forecast with what codec auto took."};
    line.option("observed", observed, "The report (GRADWIRE_REPORT) of a job that was observed").required();
    line.option("auto", auto_run, "What bench_osu --json wrote under codec auto").required();
    line.option("--where", where, "For the head of the table");
    line.option("--json", json, "Write the rows to this file");
    line.option("--markdown", markdown, "Write the table to this file");
    line.parse(argc, argv);
    return gradwire::bench::make(observed, auto_run, where, json, markdown);
  });
}
