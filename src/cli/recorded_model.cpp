#include "cli/recorded_model.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/read_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/gradients.hpp"
#include "cli/report.hpp"
#include "cli/report_forecast.hpp"
#include "gradwire/error.hpp"
#include "record/gradient_folder.hpp"

namespace gradwire::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMostLayers = 100'000;
constexpr std::uint64_t kMostElements = 1ULL << 48;
constexpr double kLeastShare = 0.01;  // of the bytes of the largest class; calls of smaller ones may come rarely

[[noreturn]] void refuse_source(const std::string& from, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, from + ": " + what);
}

ModelFile model_of_gradients(const std::string& from) {
  const Gradients gradients = read_gradients({from});
  ModelFile model;
  for (const GradientSteps& tensor : gradients.tensors) {
    model.layers.push_back({.name = tensor.name, .count = tensor.count, .dtype = tensor.dtype, .ndim = tensor.ndim});
  }
  std::error_code ignored;
  if (fs::exists(fs::path(from) / record::kIndexFile, ignored)) {
    std::reverse(model.layers.begin(), model.layers.end());  // gradients become ready from the last layer on
  }
  return model;
}

// One class of calls that sum floats.
struct SumClass {
  std::string name;
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  double calls = 0;  // of one rank
  [[nodiscard]] double bytes() const {
    return calls * static_cast<double>(count) * static_cast<double>(element_bytes(dtype));
  }
};

double number_of(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() || !found->is_number() ? 0 : found->get<double>();
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() || !found->is_string() ? std::string() : found->get<std::string>();
}

// Nothing for types that are no floats.
std::optional<DType> float_type(const std::string& name) {
  try {
    return parse_dtype(name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<SumClass> sums_of(const json& report, double ranks) {
  std::vector<SumClass> sums;
  for (const json& entry : report.at("classes")) {
    const auto dtype = float_type(text_of(entry, "dtype"));
    const double count = number_of(entry, "count");
    const double calls = number_of(entry, "calls") / ranks;
    if (!dtype || text_of(entry, "op") != "sum" || !(count >= 1) || count > static_cast<double>(kMostElements) ||
        !(calls > 0)) {
      continue;
    }
    const std::string name = text_of(entry, "name");
    sums.push_back({.name = name.empty() ? "sum-" + std::to_string(sums.size()) : name,
                    .dtype = *dtype,
                    .count = static_cast<std::uint64_t>(count),
                    .calls = calls});
  }
  return sums;
}

// The calls of the class that comes least often, among those that matter: that class comes once in a step. `sums` is
// not empty, and its largest class always matters.
double steps_of(const std::vector<SumClass>& sums) {
  double most = 0;
  for (const SumClass& sum : sums) {
    most = std::max(most, sum.bytes());
  }
  double steps = 0;
  for (const SumClass& sum : sums) {
    if (sum.bytes() >= kLeastShare * most && (steps == 0 || sum.calls < steps)) {
      steps = sum.calls;
    }
  }
  return steps;
}

// The time of a rank outside of replaced calls, by step; 0: not known.
double compute_of(const json& report, double ranks, double steps) {
  const auto forecast = report.find("forecast");
  const double run = forecast == report.end() ? 0 : number_of(*forecast, "run_seconds");
  double calls = 0;
  for (const json& entry : report.at("classes")) {
    calls += number_of(entry, "seconds");
  }
  return std::max(0.0, run - calls / ranks) / steps;
}

// The number of ranks whose calls a report counts.
double ranks_of(const json& report, const std::string& file) {
  try {
    if (report.at("classes").is_array()) {
      return counted_ranks(report);
    }
  } catch (const json::exception&) {  // NOLINT(bugprone-empty-catch): a key is missing, or of another type
  }
  refuse_source(file,
                "is no report of replaced calls; gradwire run --report FILE.json writes one, and a directory of "
                "gradients is read, too");
}

RecordedModel model_of_report(const std::string& file) {
  const json report = json::parse(read_file(file, kMaxReportBytes, "report"), nullptr, false);
  const double ranks = ranks_of(report, file);
  const std::vector<SumClass> sums = sums_of(report, ranks);
  if (sums.empty()) {
    refuse_source(file, "has no sum of floats, so there are no gradients to plan for");
  }
  const double steps = steps_of(sums);
  RecordedModel recorded;
  for (const SumClass& sum : sums) {
    const auto repeat = static_cast<std::uint64_t>(std::llround(std::min(sum.calls / steps, 1e9)));
    if (repeat > kMostLayers - recorded.model.layers.size()) {
      refuse_source(file,
                    "has more than " + std::to_string(kMostLayers) + " sums in a step; write a model file (--layers)");
    }
    for (std::uint64_t i = 0; i < repeat; ++i) {
      recorded.model.layers.push_back({.name = sum.name + (repeat > 1 ? "." + std::to_string(i) : std::string()),
                                       .count = sum.count,
                                       .dtype = sum.dtype});
    }
  }
  recorded.model.compute_seconds = compute_of(report, ranks, steps);
  recorded.source = file + " (" + format_number(std::round(steps)) + " steps, " +
                    std::to_string(recorded.model.layers.size()) + " sums in each)";
  return recorded;
}

// The only report in a directory of gradwire run --report; empty: there is none, so it holds gradients.
std::string report_in(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code problem;
  for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("calls-") && name.ends_with(".json")) {
      found.push_back(entry->path().string());
    }
  }
  if (found.size() > 1) {
    refuse_source(folder.string(), "holds reports of several jobs; name one of them, such as " +
                                       *std::min_element(found.begin(), found.end()));
  }
  return found.empty() ? "" : found.front();
}

}  // namespace

RecordedModel read_recorded_model(const std::string& from, const std::optional<std::string>& compute) {
  std::error_code ignored;
  const std::string report = fs::is_directory(from, ignored)         ? report_in(from)
                             : fs::path(from).extension() == ".json" ? from
                                                                     : "";
  RecordedModel recorded =
      report.empty() ? RecordedModel{.model = model_of_gradients(from), .source = from} : model_of_report(report);
  if (!report.empty() && !compute) {
    recorded.note =
        "computing: all of the job's time outside of the calls in its report, with start and end; if that is too "
        "much, give --compute, such as --compute 3ms";
  }
  if (compute) {
    recorded.model.compute_seconds = std::chrono::duration<double>(parse_duration(*compute)).count();
  }
  if (!(recorded.model.compute_seconds > 0)) {
    refuse_source(from, "does not say how long a step computes on one rank; add it, such as --compute 180ms");
  }
  return recorded;
}

}  // namespace gradwire::cli
