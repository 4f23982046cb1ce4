// Every environment variable of gradwire: one table with type, default and allowed values. docs/environment.md lists
// those of others that are read. `gradwire info` prints the table; a test checks that document against it.
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
/// Of a variable with the values 0 and 1: whether it is 1. Error(invalid_argument) for anything else.
[[nodiscard]] bool environment_flag(std::string_view name);
/// Of GRADWIRE_SLOW: the share of a step from which on a rank is slow, `usual` where it says "warn" or nothing; nothing
/// where it is "off". Error(invalid_argument) for anything else.
[[nodiscard]] std::optional<double> environment_slow(double usual);
/// Whether what only observes a job is checked too: inside a job a wrong value there is one warning, and no more.
enum class ObservingToo : bool { no, yes };
/// Each variable that has a value which the table does not allow, with what to write. Files are not opened.
[[nodiscard]] std::vector<std::string> environment_problems(ObservingToo observing = ObservingToo::yes);
/// Error(invalid_argument) with the first of them.
void check_environment(ObservingToo observing = ObservingToo::yes);

}  // namespace gradwire
