// What GRADWIRE_REPORT names. It is read here and nowhere else.
#pragma once

#include <optional>
#include <string>

namespace gradwire {

/// A name that ends in ".json" is a file, in which rank 0 says what became of replaced calls. Any other is a directory,
/// which has such a file of each process that writes one ("%p": its number), and the histories of all ranks.
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
