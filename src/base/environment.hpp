// Every environment variable of gradwire: one table with type, default and allowed values. `gradwire info` prints the
// table, and a test checks docs/reference/environment.md against it; that document also lists variables of other
// programs that are read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view values;         // "0 | 1", "trace | debug | info | warn | error | off"
  std::string_view default_value;  // as text
  std::string_view meaning;
};

[[nodiscard]] std::span<const EnvironmentVariable> environment_variables() noexcept;
/// The value, or nothing when unset or empty. Error(internal) for a name that is not in the table.
[[nodiscard]] std::optional<std::string> environment(std::string_view name);
/// Whether a variable with the values 0 and 1 is 1. Error(invalid_argument) for any other value.
[[nodiscard]] bool environment_flag(std::string_view name);
/// The value of GRADWIRE_SLOW: the share of a step from which on a rank is slow; `usual` for "warn" or no value;
/// nothing for "off". Error(invalid_argument) for any other value.
[[nodiscard]] std::optional<double> environment_slow(double usual);
/// Whether to check variables that only observe a job, too: inside a job a wrong value of those is only a warning.
enum class ObservingToo : bool { no, yes };
/// A message for each variable with a value that the table does not allow, and what to write. Files are not opened.
[[nodiscard]] std::vector<std::string> environment_problems(ObservingToo observing = ObservingToo::yes);
/// Throws Error(invalid_argument) with the first of these messages, if there is one.
void check_environment(ObservingToo observing = ObservingToo::yes);

}  // namespace gradwire
