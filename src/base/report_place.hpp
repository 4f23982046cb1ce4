// The place that GRADWIRE_REPORT names. Only this file reads the variable.
#pragma once

#include <optional>
#include <string>

namespace gradwire {

/// A name that ends in ".json" is a file, in which rank 0 reports the replaced calls. Any other name is a directory,
/// for such a file of each process that writes one ("%p": its number), and for the histories of all ranks.
struct ReportPlace {
  std::string named;  // as it was written
  std::optional<std::string> directory;
  std::string calls;
};

[[nodiscard]] ReportPlace report_place(const std::string& name);

/// What the environment variable GRADWIRE_REPORT names; std::nullopt if it is not set. Relative paths are resolved
/// against the directory in which this process started.
[[nodiscard]] std::optional<ReportPlace> report_place_of_environment();

}  // namespace gradwire
