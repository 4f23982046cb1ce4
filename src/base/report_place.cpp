#include "base/report_place.hpp"

#include "base/environment.hpp"
#include "base/start_directory.hpp"

namespace gradwire {

ReportPlace report_place(const std::string& name) {
  if (name.ends_with(".json")) {
    return {.named = name, .directory = std::nullopt, .calls = name};
  }
  return {.named = name, .directory = name, .calls = name + (name.ends_with('/') ? "" : "/") + "calls-%p.json"};
}

std::optional<ReportPlace> report_place_of_environment() {
  const std::optional<std::string> name = environment("GRADWIRE_REPORT");
  if (!name) {
    return std::nullopt;
  }
  ReportPlace place = report_place(from_start_directory(*name));
  place.named = *name;
  return place;
}

}  // namespace gradwire
