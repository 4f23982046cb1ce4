#include "cli/report_advice.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gradwire::cli {
namespace {

using nlohmann::json;

// Whether an entry has this value. A key may be missing, or null where a class has many dtypes.
bool class_says(const json& entry, const char* key, const char* value) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() && found->get<std::string>() == value;
}

bool some_class_says(const json& report, const char* key, const char* value) {
  const json& classes = report.at("classes");
  return std::any_of(classes.begin(), classes.end(), [=](const json& entry) { return class_says(entry, key, value); });
}

}  // namespace

std::string advice_of(const json& report) {
  std::string text;
  if (some_class_says(report, "reason", "step not known yet")) {
    text +=
        "step not known yet: the codec adds what it leaves out to the next call at this place, and the calls do not "
        "come in the same order with the same sizes each step. `gradwire run --no-feedback` (error_feedback = \"off\" "
        "in a policy) compresses them without that; a job of your own can name its buffers (gradwire_name)\n";
  }
  const json& classes = report.at("classes");
  if (std::any_of(classes.begin(), classes.end(), [](const json& entry) {
        return class_says(entry, "dtype", "f64") && class_says(entry, "reason", "type is not compressed");
      })) {
    text +=
        "type is not compressed: sums of f64 are compressed only on request: `gradwire run --f64`, or a rule "
        "with dtype = \"f64\" in a policy\n";
  }
  return text;
}

std::string why_not_measured(const json& report) {
  const std::string policy = report.at("policy").get<std::string>();
  if (some_class_says(report, "reason", "being measured")) {
    return "what compression saves is not known: too few calls were compared. The first calls of a class are made both "
           "ways, 11 of them at most; run longer, or name a codec\n";
  }
  if (some_class_says(report, "reason", "passed in the recorded job")) {
    return "what compression saved was not measured: the choices were recorded by an earlier job and are not compared "
           "again\n";
  }
  if (policy.starts_with("GRADWIRE_CODEC=") && policy != "GRADWIRE_CODEC=auto") {
    return "what compression saved was not measured: a codec that is named is not compared; auto compares\n";
  }
  return "what compression saved was not measured: a codec that is named, or recorded, is not compared; auto "
         "compares\n";
}

}  // namespace gradwire::cli
