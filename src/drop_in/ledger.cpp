#include "drop_in/ledger.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/current_error.hpp"
#include "base/durable_file.hpp"
#include "base/emulated_link.hpp"
#include "base/units.hpp"
#include "base/world_name.hpp"
#include "drop_in/forecast.hpp"
#include "gradwire/version.hpp"

namespace gradwire::drop_in {
namespace {

using nlohmann::json;

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}
json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

json dtype_json(const std::optional<DType>& dtype) { return dtype ? json(std::string(to_string(*dtype))) : json(); }

json totals_json(const CallTotals& totals) {
  return {{"calls", totals.calls},
          {"compressed_calls", totals.compressed_calls},
          {"bytes_in", totals.bytes_in},
          {"bytes_dense", totals.bytes_dense},
          {"bytes_sent", totals.bytes_sent},
          {"ratio", totals.ratio()},
          {"lossy_calls", totals.lossy_calls},
          {"largest_error", or_null(totals.largest_error)}};
}

json measured_json(const std::optional<CallTotals::Measured>& measured) {
  return measured ? json{{"passed_seconds", measured->passed}, {"compressed_seconds", measured->compressed}} : json();
}

json forecast_class_json(const ForecastClass& one) {
  return {{"function", std::string(name_of(one.what.function))},
          {"dtype", std::string(to_string(one.what.dtype))},
          {"size_class", one.what.size},
          {"communicator_size", one.what.communicator_size},
          {"codec", one.codec},
          {"calls", one.calls},
          {"bytes", one.bytes},
          {"passed_seconds", one.passed_seconds},
          {"forecast_seconds", or_null(one.compressed_seconds)},
          {"forecast_saved_seconds", or_null(one.saved_seconds)},
          {"ratio", or_null(one.ratio)},
          {"relative_error", or_null(one.relative_error)},
          {"zeroed_share", or_null(one.zeroed_share)},
          {"small_nmse", or_null(one.small_nmse)}};
}

// Returns null if no call was observed that a codec could compress.
json forecast_json(const Observed& observed) {
  const Forecast forecast = forecast_of(observed);
  if (forecast.classes.empty()) {
    return {};
  }
  json classes = json::array();
  for (const ForecastClass& one : forecast.classes) {
    classes.push_back(forecast_class_json(one));
  }
  return {{"saved_seconds", or_null(forecast.saved_seconds)},
          {"run_seconds", observed.run_seconds},
          {"cost_seconds", observed.cost_seconds},
          {"classes", classes}};
}

struct Sums {
  CallTotals all;
  CallTotals compressed;
};

Sums sum_up(const Ledger::Classes& classes) {
  Sums sums;
  for (const auto& [what, totals] : classes) {
    sums.all.add(totals);
    if (what.reason == Reason::none) {
      sums.compressed.add(totals);
    }
  }
  return sums;
}

// Returns the calls that passed: those are the library's own.
json clear_text_json(const Sums& sums) {
  return {{"calls", sums.all.calls - sums.compressed.calls}, {"bytes", sums.all.bytes_in - sums.compressed.bytes_in}};
}

std::string clear_text(const Sums& sums) {
  const std::uint64_t calls = sums.all.calls - sums.compressed.calls;
  return calls == 0 ? "; all encrypted"
                    : "; in clear text: " + std::to_string(calls) + (calls == 1 ? " call of " : " calls of ") +
                          format_bytes(sums.all.bytes_in - sums.compressed.bytes_in);
}

}  // namespace

void CallTotals::add(const CallTotals& other) {
  calls += other.calls;
  compressed_calls += other.compressed_calls;
  bytes_in += other.bytes_in;
  bytes_dense += other.bytes_dense;
  bytes_sent += other.bytes_sent;
  seconds += other.seconds;
  measured = other.measured ? other.measured : measured;
  if (!other.algorithm.empty()) {
    algorithm = other.algorithm;
  }
  lossy_calls += other.lossy_calls;
  if (other.largest_error) {
    largest_error = std::max(largest_error.value_or(0), *other.largest_error);
  }
}

double CallTotals::ratio() const {
  return bytes_sent == 0 ? 1.0 : static_cast<double>(bytes_dense) / static_cast<double>(bytes_sent);
}

CallTotals passed_totals(Function function, std::uint64_t calls, std::uint64_t bytes, int world_size) {
  const std::uint64_t ranks = world_size > 0 ? static_cast<std::uint64_t>(world_size) : 1;
  const std::uint64_t dense = dense_bytes(function, bytes, world_size) / ranks;
  return {.calls = calls, .bytes_in = bytes, .bytes_dense = dense, .bytes_sent = dense};
}

void Ledger::add(const CallClass& what, const CallTotals& totals) {
  const MutexLock lock(mutex_);
  auto found = classes_.find(what);
  if (found == classes_.end()) {
    CallClass coarse = what;
    if (classes_.size() >= kMostClasses) {
      coarse.count = 0;
      coarse.order.reset();
      coarse.name.clear();
    }
    found = classes_.try_emplace(coarse).first;
  }
  found->second.add(totals);
}

std::string Ledger::to_text() const {
  json rows = json::array();
  for (const auto& [what, totals] : classes()) {
    rows.push_back({static_cast<int>(what.function), what.dtype ? static_cast<int>(*what.dtype) : 0, what.op,
                    what.count, what.communicator_size, or_null(what.order), what.name, what.codec,
                    static_cast<int>(what.reason), totals.calls, totals.compressed_calls, totals.bytes_in,
                    totals.bytes_dense, totals.bytes_sent, totals.seconds, measured_json(totals.measured),
                    totals.algorithm, totals.lossy_calls, or_null(totals.largest_error)});
  }
  return json{{"resets", resets()},
              {"rows", rows},
              {"choices", choices_to_text(choices(), "")},
              {"observed", observed().to_text()}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

void Ledger::merge(const std::string& text) {
  const json other = json::parse(text);
  for (const json& row : other.at("rows")) {
    CallClass what;
    what.function = Function{row.at(0).get<std::uint8_t>()};
    if (const auto dtype = row.at(1).get<std::uint8_t>(); dtype != 0) {
      what.dtype = DType{dtype};
    }
    what.op = row.at(2);
    what.count = row.at(3);
    what.communicator_size = row.at(4);
    if (!row.at(5).is_null()) {
      what.order = row.at(5).get<std::uint64_t>();
    }
    what.name = row.at(6);
    what.codec = row.at(7);
    what.reason = Reason{row.at(8).get<std::uint8_t>()};
    std::optional<CallTotals::Measured> measured;
    if (const json& compared = row.at(15); !compared.is_null()) {
      measured = {compared.at("passed_seconds"), compared.at("compressed_seconds")};
    }
    std::optional<double> largest_error;
    if (!row.at(18).is_null()) {
      largest_error = row.at(18).get<double>();
    }
    add(what, {.calls = row.at(9),
               .compressed_calls = row.at(10),
               .bytes_in = row.at(11),
               .bytes_dense = row.at(12),
               .bytes_sent = row.at(13),
               .seconds = row.at(14),
               .measured = measured,
               .algorithm = row.at(16),
               .lossy_calls = row.at(17),
               .largest_error = largest_error});
  }
  for (const auto& [communicator, choices] : choices_from_text(other.at("choices"), "")) {
    add_choices(communicator, choices);
  }
  add_observed(Observed::from_text(other.at("observed")));
  const MutexLock lock(mutex_);
  resets_ += other.at("resets").get<std::uint64_t>();
}

std::string report_json(const ReportHead& head, const Ledger& ledger) {
  const Ledger::Classes classes = ledger.classes();
  json rows = json::array();
  for (const auto& [what, totals] : classes) {
    json row = totals_json(totals);
    row["function"] = std::string(name_of(what.function));
    row["dtype"] = dtype_json(what.dtype);
    row["op"] = or_null(what.op);
    row["count"] = what.count;
    row["communicator_size"] = what.communicator_size;
    row["order"] = or_null(what.order);
    row["name"] = or_null(what.name);
    row["codec"] = or_null(what.codec);
    const std::size_t name = totals.algorithm.find(": ");
    row["algorithm"] = or_null(totals.algorithm.substr(0, name));
    row["algorithm_reason"] = name == std::string::npos ? json() : json(totals.algorithm.substr(name + 2));
    row["seconds"] = totals.seconds;
    row["reason"] = or_null(std::string(text(what.reason)));
    row["measured"] = measured_json(totals.measured);
    rows.push_back(std::move(row));
  }
  const Sums sums = sum_up(classes);
  json totals = totals_json(sums.all);
  totals["ratio_compressed"] = sums.compressed.ratio();
  totals["resets"] = ledger.resets();
  if (head.has_key) {
    totals["in_clear_text"] = clear_text_json(sums);
  }
  const json report = {{"gradwire", kVersion},
                       {"world", head.world_size},
                       {"emulated_link", or_null(emulated_link_of_job())},
                       {"library", head.implementation},
                       {"dry_run", head.dry_run},
                       {"policy", head.policy},
                       {"disabled", or_null(head.disabled)},
                       {"note", or_null(head.note)},
                       {"has_session", head.has_session},
                       {"totals", totals},
                       {"classes", rows},
                       {"forecast", forecast_json(ledger.observed())}};
  return report.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string status_text(const Ledger& ledger) {
  const CallTotals compressed = sum_up(ledger.classes()).compressed;
  return std::to_string(compressed.compressed_calls) + " calls compressed, " + format_bytes(compressed.bytes_sent) +
         " sent for " + format_bytes(compressed.bytes_dense) + ", ratio " + format_number(compressed.ratio(), 3);
}

// Returns the reason why most bytes were not compressed.
std::string main_reason(const Ledger::Classes& classes) {
  const auto most = std::max_element(classes.begin(), classes.end(), [](const auto& a, const auto& b) {
    return a.second.bytes_in < b.second.bytes_in;
  });
  if (most == classes.end()) {
    return "";
  }
  const Reason reason = most->first.reason;
  return std::string(text(reason)) +
         (reason == Reason::learning ? " (error_feedback = \"off\", as by --no-feedback, compresses them)" : "");
}

// Returns "; forecast: gradwire run --codec auto -- ... would save 3.2 s of each rank's time", as far as that is known.
std::string observed_text(const ReportHead& head, const Ledger& ledger) {
  const std::string command =
      head.implementation == "c10d" ? "GRADWIRE_CODEC=auto" : "gradwire run --codec auto -- ...";
  const std::optional<double> saved = forecast_of(ledger.observed()).saved_seconds;
  if (!saved) {
    return "; to compress: " + command;
  }
  constexpr int kFew = 3;
  return "; forecast: " + command +
         (*saved > 0
              ? " would save " + format_number(*saved / std::max(1, head.world_size), kFew) + " s of each rank's time"
              : " would save nothing here");
}

std::string report_summary(const ReportHead& head, const Ledger& ledger) {
  const Ledger::Classes classes = ledger.classes();
  const Sums sums = sum_up(classes);
  std::string line = std::to_string(sums.all.compressed_calls) + " of " + std::to_string(sums.all.calls) +
                     (head.dry_run ? " calls would be compressed" : " calls compressed");
  if (head.has_session && sums.all.compressed_calls == 0) {
    line = "the job's own session sends its gradients; the drop-in saw " + std::to_string(sums.all.calls) +
           " collective calls of MPI, and compressed none";
  } else if (sums.all.calls > 0 && sums.all.compressed_calls == 0) {
    line += "; main reason: " + main_reason(classes);
    if (main_reason(classes) == text(Reason::observing)) {
      line += observed_text(head, ledger);
    }
  } else if (sums.all.calls > 0) {
    line += ", " + format_bytes(sums.all.bytes_sent) + " sent for " + format_bytes(sums.all.bytes_dense) + ", ratio " +
            format_number(sums.compressed.ratio(), 3) + " on compressed calls, " + format_number(sums.all.ratio(), 3) +
            " over all";
  }
  if (ledger.resets() > 0) {
    line += "; the step changed " + std::to_string(ledger.resets()) + " times";
  }
  if (head.has_key) {
    line += clear_text(sums);
  }
  return line + (head.note.empty() ? "" : " (" + head.note + ")");
}

std::optional<std::string> write_report(const std::string& file, const std::string& json) {
  try {
    write_report_file(file_with_world_name(file), [&](std::ostream& stream) { stream << json; });
    return std::nullopt;
  } catch (...) {
    return "the report is lost: " + std::string(current_error().what()) +
           "; set GRADWIRE_REPORT to a file in a folder that exists";
  }
}

}  // namespace gradwire::drop_in
