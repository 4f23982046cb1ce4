// What GRADWIRE_REPORT names.
#pragma once

#include <optional>
#include <string>

namespace gradwire {

/// A name that ends in ".json" is a file, in which rank 0 says what became of replaced calls. Any other is a directory,
/// which has such a file of each process that writes one ("%p": its number), and the histories of all ranks.
struct ReportPlace {
  std::optional<std::string> directory;
  std::string calls;
};

[[nodiscard]] inline ReportPlace report_place(const std::string& value) {
  if (value.ends_with(".json")) {
    return {.directory = std::nullopt, .calls = value};
  }
  return {.directory = value, .calls = value + (value.ends_with('/') ? "" : "/") + "calls-%p.json"};
}

}  // namespace gradwire
