#include "cli/report.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/read_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/report_advice.hpp"
#include "cli/report_forecast.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMostRows = 40;  // a job that calls with ever new counts has thousands of classes
constexpr int kDigits = 4;

std::string text_or(const json& object, const char* key, const std::string& otherwise) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? otherwise : found->get<std::string>();
}

// The number of a key, or `otherwise`: classes of passed calls, and calls before the first step, lack some keys.
std::string number_or(const json& object, const char* key, const std::string& otherwise) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? otherwise : std::to_string(found->get<std::uint64_t>());
}

std::uint64_t number(const json& object, const char* key) { return object.at(key).get<std::uint64_t>(); }

std::string ratio(const json& object, const char* key) { return format_number(object.at(key).get<double>(), kDigits); }

std::string seconds(const json& object) { return format_number(object.at("seconds").get<double>(), kDigits) + " s"; }

// The reason for passing: "no faster on this link (0.7 ms; compressed 1.2)", with times of one call.
std::string reason(const json& entry) {
  const auto measured = entry.find("measured");
  std::string why = text_or(entry, "reason", "-");
  if (why == "-" || measured == entry.end() || measured->is_null()) {
    return why;
  }
  constexpr double kMillisecond = 1e-3;
  constexpr int kFew = 3;
  const double passed = measured->at("passed_seconds").get<double>();
  const double compressed = measured->at("compressed_seconds").get<double>();
  // Compression had the lower median, but was not faster in nearly all pairs of calls: times that scatter decide
  // nothing.
  const std::string caveat = compressed < passed && why.starts_with("no faster") ? ", not always faster" : "";
  const bool long_ones = std::max(passed, compressed) >= kMillisecond;
  const double unit = long_ones ? 1e3 : 1e6;
  return why + " (" + format_number(passed * unit, kFew) + (long_ones ? " ms" : " us") + "; compressed " +
         format_number(compressed * unit, kFew) + caveat + ")";
}

std::vector<std::string> row(const json& entry) {
  return {entry.at("function").get<std::string>(),
          text_or(entry, "dtype", "-"),
          text_or(entry, "op", "-"),
          entry.at("dtype").is_null() ? "-" : std::to_string(number(entry, "count")),
          std::to_string(number(entry, "communicator_size")),
          number_or(entry, "order", "-"),
          text_or(entry, "name", "-"),
          std::to_string(number(entry, "calls")),
          std::to_string(number(entry, "compressed_calls")),
          text_or(entry, "codec", "-"),
          text_or(entry, "algorithm", "-"),
          format_bytes(number(entry, "bytes_in")),
          format_bytes(number(entry, "bytes_dense")),
          format_bytes(number(entry, "bytes_sent")),
          ratio(entry, "ratio"),
          seconds(entry),
          reason(entry)};
}

std::string class_table(const json& classes) {
  std::vector<json> entries(classes.begin(), classes.end());
  std::stable_sort(entries.begin(), entries.end(),
                   [](const json& a, const json& b) { return number(a, "bytes_in") > number(b, "bytes_in"); });
  std::vector<std::vector<std::string>> rows{{"function", "dtype", "op", "count", "ranks", "order", "name", "calls",
                                              "compressed", "lossy codec", "algorithm", "bytes in", "dense bytes",
                                              "bytes sent", "ratio", "time", "passed because"}};
  for (std::size_t i = 0; i < std::min(entries.size(), kMostRows); ++i) {
    rows.push_back(row(entries[i]));
  }
  std::string text = text::table(rows, "lllrrrlrrllrrrrrl");
  if (entries.size() > kMostRows) {
    text += "and " + std::to_string(entries.size() - kMostRows) + " classes of fewer bytes\n";
  }
  return text;
}

// The algorithms where the policy left them open: "algorithm by the cost model: hierarchical: 2 nodes of 2 ranks".
std::string choices(const json& classes) {
  std::set<std::string> chosen;
  for (const json& entry : classes) {
    if (const std::string why = text_or(entry, "algorithm_reason", ""); !why.empty()) {
      chosen.insert(text_or(entry, "algorithm", "") + ": " + why);
    }
  }
  std::string text;
  for (const std::string& one : chosen) {
    text += (text.empty() ? "algorithm by the cost model: " : "; ") + one;
  }
  return text.empty() ? text : text + '\n';
}

std::string saving_text(double calls, double seconds, double world) {
  constexpr double kMilliseconds = 1e3;
  constexpr int kFew = 3;
  return std::string("compression ") + (seconds >= 0 ? "saves " : "costs ") +
         format_number(std::abs(seconds / calls) * kMilliseconds, kFew) + " ms a call, " +
         format_number(std::abs(seconds) / world, kFew) +
         " s of each rank's time (measured: " + format_number(calls / world, kFew + 1) +
         " calls a rank, compared with the library's own)\n";
}

// The line above the table: the saving by the latest comparison of each class with the library's own calls, or why none
// is known.
std::string saving(const json& root, std::uint64_t compressed_calls) {
  double calls = 0;
  double seconds = 0;
  bool any = false;
  for (const json& entry : root.at("classes")) {
    const auto measured = entry.find("measured");
    if (measured == entry.end() || measured->is_null()) {
      continue;
    }
    any = true;
    const auto compressed = static_cast<double>(number(entry, "compressed_calls"));
    calls += compressed;
    seconds +=
        compressed * (measured->at("passed_seconds").get<double>() - measured->at("compressed_seconds").get<double>());
  }
  if (calls > 0) {
    return saving_text(calls, seconds, counted_ranks(root));
  }
  if (any) {
    return "compression saves nothing here, as measured: its calls took no less time than the library's own\n";
  }
  const json& classes = root.at("classes");
  const bool being_measured = std::any_of(classes.begin(), classes.end(), [](const json& entry) {
    return text_or(entry, "reason", "") == "being measured";
  });
  return compressed_calls == 0 && !being_measured ? "" : why_not_measured(root);
}

// "; lossy calls: 120, largest sampled relative error 0.8%".
std::string lossy(const json& totals) {
  const auto calls = totals.find("lossy_calls");
  if (calls == totals.end() || calls->get<std::uint64_t>() == 0) {
    return "";
  }
  constexpr int kFew = 3;
  constexpr double kPercent = 100;
  const auto error = totals.find("largest_error");
  return "; lossy calls: " + std::to_string(calls->get<std::uint64_t>()) +
         (error == totals.end() || error->is_null()
              ? ", no error sampled"
              : ", largest sampled relative error " + format_number(error->get<double>() * kPercent, kFew) + "%");
}

// The mode of the drop-in: "observing", "compressing" or "disabled".
std::string mode(const json& root, const Report& report, const std::string& disabled) {
  if (!disabled.empty()) {
    return "disabled";
  }
  const bool named = root.at("policy") != "built-in";
  const bool compressing =
      !root.at("dry_run").get<bool>() && !report.observed && (named || report.compressed_calls > 0);
  return compressing ? "compressing" : "observing";
}

// ", emulated 1Gbit/s", or nothing.
std::string emulated(const json& root) {
  const std::string link = text_or(root, "emulated_link", "");
  return link.empty() ? "" : ", emulated " + text::printable(link);
}

// Tells of the calls of a job with a key that were the library's own.
std::string clear_text(const json& totals) {
  const auto found = totals.find("in_clear_text");
  return found == totals.end() ? ""
                               : "\nin clear text: " + std::to_string(number(*found, "calls")) + " calls, " +
                                     format_bytes(number(*found, "bytes")) + "; the compressed ones were encrypted";
}

Report make_report(const json& root) {
  const json& totals = root.at("totals");
  Report report{.calls = number(totals, "calls"),
                .compressed_calls = number(totals, "compressed_calls"),
                .ranks = number(root, "world"),
                .dense_bytes = number(totals, "bytes_dense"),
                .sent_bytes = number(totals, "bytes_sent"),
                .observed = only_observed(root),
                .has_session = root.value("has_session", false),
                .disabled = false,
                .text = {}};
  const bool dry = root.at("dry_run").get<bool>();
  const std::string policy = root.at("policy").get<std::string>();
  const std::string disabled = text_or(root, "disabled", "");
  report.text = "gradwire " + root.at("gradwire").get<std::string>() + ", " + root.at("library").get<std::string>() +
                ", " + std::to_string(report.ranks) + (report.ranks == 1 ? " rank" : " ranks") + ", " +
                mode(root, report, disabled) + ", policy " + policy + emulated(root) +
                (dry ? "; dry run: nothing was compressed; the bytes are those that would have been sent\n" : "\n");
  report.text = (dry ? "" : forecast_lead(root) + saving(root, report.compressed_calls)) + report.text;
  if (dry && (policy == "built-in" || policy == "GRADWIRE_CODEC=auto")) {
    report.text += policy == "built-in" ? "no codec was named: these are the bytes of int8; without --dry-run nothing "
                                          "is compressed until one is named, such as --codec auto\n"
                                        : "a run without --dry-run compares first, and then compresses only calls that "
                                          "this makes faster\n";
  }
  const std::string note = text_or(root, "note", "");
  report.disabled = !disabled.empty();
  if (report.disabled) {
    report.text += "every call is passed through: " + disabled + '\n';
    if (report.calls == 0) {
      report.text += "A disabled drop-in does not count calls, so there is no table." +
                     (note.empty() ? "\n" : "\nnote: " + note + '\n');
      return report;
    }
  }
  report.text +=
      '\n' + class_table(root.at("classes")) + choices(root.at("classes")) + advice_of(root) + forecast_table(root) +
      "\ncalls: " + std::to_string(report.calls) + ", compressed: " + std::to_string(report.compressed_calls) +
      "; bytes in: " + format_bytes(number(totals, "bytes_in")) +
      ", sent: " + format_bytes(number(totals, "bytes_sent")) + " instead of " +
      format_bytes(number(totals, "bytes_dense")) + lossy(totals) + clear_text(totals) +
      "\nratio: " + ratio(totals, "ratio_compressed") + " on compressed calls, " + ratio(totals, "ratio") +
      " over all (calls, bytes and time: " + (note.empty() ? "all ranks)" : "of the ranks that reported theirs)") +
      (totals.contains("in_clear_text") ? "\n" : "; not encrypted\n") + (note.empty() ? "" : "note: " + note + '\n') +
      "order: place of a call in its step; algorithm: how ranks exchange the encoded values; bytes in: of the job's "
      "buffers;\n"
      "dense bytes: what a perfect uncompressed algorithm sends for these calls; ratio: dense bytes / bytes sent;\n"
      "time: of all calls of all ranks together, with the wait for ranks that call later\n";
  return report;
}

}  // namespace

Report read_report(const std::filesystem::path& file) {
  try {
    return make_report(json::parse(read_file(file, kMaxReportBytes, "report")));
  } catch (const json::exception& error) {
    throw Error(ErrorCode::corrupt, file.string() + " is no report of gradwire: " + error.what());
  }
}

}  // namespace gradwire::cli
