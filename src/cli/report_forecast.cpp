#include "cli/report_forecast.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"

namespace gradwire::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMostForecasts = 20;
constexpr int kForecastDigits = 3;
constexpr double kToPercent = 100;

const json* forecast_of(const json& report) {
  const auto found = report.find("forecast");
  return found == report.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> known_number(const json& object, const char* key) {
  const json& value = object.at(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

std::string command_of(const json& report) {
  const std::string library = report.at("library").get<std::string>();
  if (library.starts_with("NCCL")) {
    return "GRADWIRE_CODEC=int8";
  }
  return library == "c10d" ? "GRADWIRE_CODEC=auto" : "gradwire run --codec auto -- ...";
}

std::string duration_text(double seconds) {
  constexpr double kMillisecond = 1e-3;
  const bool long_one = seconds >= kMillisecond;
  return format_number(seconds * (long_one ? 1e3 : 1e6), kForecastDigits) + (long_one ? " ms" : " us");
}

std::string duration_text(const std::optional<double>& seconds) { return seconds ? duration_text(*seconds) : "-"; }

std::string percent_text(const std::optional<double>& share) {
  return share ? format_number(*share * kToPercent, kForecastDigits) + "%" : "-";
}

std::vector<std::string> forecast_row(const json& entry) {
  const auto ratio = known_number(entry, "ratio");
  const auto nmse = known_number(entry, "small_nmse");
  return {entry.at("function").get<std::string>(),
          entry.at("dtype").get<std::string>(),
          format_bytes(static_cast<std::uint64_t>(std::llround(entry.at("bytes").get<double>()))),
          std::to_string(entry.at("communicator_size").get<int>()),
          std::to_string(entry.at("calls").get<std::uint64_t>()),
          entry.at("codec").get<std::string>(),
          duration_text(entry.at("passed_seconds").get<double>()),
          duration_text(known_number(entry, "forecast_seconds")),
          ratio ? format_number(*ratio, kForecastDigits) : "-",
          percent_text(known_number(entry, "relative_error")),
          percent_text(known_number(entry, "zeroed_share")),
          nmse ? format_number(*nmse, kForecastDigits) : "-"};
}

struct Gain {
  double calls = 0;
  double seconds = 0;
};

// The gain of the classes that would be compressed; auto passes the others.
Gain gain_of(const json& forecast) {
  Gain gain;
  for (const json& entry : forecast.at("classes")) {
    if (const auto saved = known_number(entry, "forecast_saved_seconds"); saved && *saved > 0) {
      const auto calls = static_cast<double>(entry.at("calls").get<std::uint64_t>());
      gain.calls += calls;
      gain.seconds += calls * *saved;
    }
  }
  return gain;
}

}  // namespace

bool only_observed(const json& report) {
  if (report.at("dry_run").get<bool>()) {
    return false;
  }
  const json& classes = report.at("classes");
  return forecast_of(report) != nullptr || std::any_of(classes.begin(), classes.end(), [](const json& entry) {
           const auto reason = entry.find("reason");
           return reason != entry.end() && reason->is_string() && reason->get<std::string>().starts_with("observed");
         });
}

double counted_ranks(const json& report) {
  return report.at("library") == "c10d"
             ? 1
             : static_cast<double>(std::max<std::uint64_t>(1, report.at("world").get<std::uint64_t>()));
}

std::string forecast_lead(const json& report) {
  if (!only_observed(report)) {
    return "";
  }
  const json* forecast = forecast_of(report);
  const std::string command = command_of(report);
  if (forecast == nullptr || !known_number(*forecast, "saved_seconds")) {
    return "no codec was named, so every call was the library's own; to compress: " + command + '\n';
  }
  const Gain gain = gain_of(*forecast);
  if (gain.calls == 0) {
    return "forecast: compression would save nothing here, so " + command + " would pass these calls on\n";
  }
  const double ranks = counted_ranks(report);
  return "forecast: compression would save " + duration_text(gain.seconds / gain.calls) + " a call, " +
         format_number(gain.seconds / ranks, kForecastDigits) + " s of each rank's time (" +
         format_number(gain.calls / ranks, kForecastDigits + 1) + " calls a rank): " + command + '\n';
}

std::string forecast_table(const json& report) {
  const json* forecast = forecast_of(report);
  if (forecast == nullptr || forecast->at("classes").empty()) {
    return "";
  }
  std::vector<std::vector<std::string>> rows{{"function", "dtype", "size", "ranks", "calls", "lossy codec",
                                              "time of a call", "forecast", "ratio", "relative error", "decoded to 0",
                                              "NMSE of small half"}};
  for (const json& entry : forecast->at("classes")) {
    if (rows.size() > kMostForecasts) {
      break;
    }
    rows.push_back(forecast_row(entry));
  }
  const std::string cost = percent_text(forecast->at("cost_seconds").get<double>() /
                                        std::max(1e-9, forecast->at("run_seconds").get<double>()));
  return "\nforecast, from this job's own calls and samples of each rank's own values (observing took " + cost +
         " of the run; - is not known):\n" + text::table(rows, "llrrrlrrrrrr") +
         "time of a call: of the library, where it waited little; forecast: the same with the codec;\n"
         "ratio: dense bytes / bytes that it would send; relative error, decoded to 0\n"
         "and NMSE of the half with the smallest values: what one encoding loses\n";
}

}  // namespace gradwire::cli
