#include "bench/support/command_line.hpp"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <type_traits>

namespace gradwire::bench {

using Option = CommandLine::Option;

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::existing_file() {
  option_->check(CLI::ExistingFile);
  return *this;
}

Option& Option::existing_path() {
  option_->check(CLI::ExistingPath);
  return *this;
}

Option& Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& names) {
  option_->check(CLI::IsMember(names));
  return *this;
}

template <typename Number>
Option& Option::range(Number least, Number most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
template Option& Option::range(int, int);
template Option& Option::range(double, double);
template Option& Option::range(std::size_t, std::size_t);

Option& Option::or_environment(const std::string& name) {
  option_->envname(name);
  return *this;
}

CommandLine::CommandLine(const std::string& description) : app_(std::make_unique<CLI::App>(description)) {}

CommandLine::~CommandLine() = default;

template <typename Value>
Option CommandLine::option(const std::string& name, Value& value, const std::string& help) {
  CLI::Option* added = app_->add_option(name, value, help);
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    added->delimiter(',');
  }
  [[maybe_unused]] bool shown = value != Value();
  if constexpr (std::is_floating_point_v<Value>) {
    shown = shown && !std::isnan(value);
  }
  if constexpr (!std::is_same_v<Value, std::optional<std::uint64_t>>) {
    if (shown) {
      added->capture_default_str();
    }
  }
  return Option(added);
}
template Option CommandLine::option(const std::string&, std::string&, const std::string&);
template Option CommandLine::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option CommandLine::option(const std::string&, double&, const std::string&);
template Option CommandLine::option(const std::string&, int&, const std::string&);
template Option CommandLine::option(const std::string&, std::uint32_t&, const std::string&);
template Option CommandLine::option(const std::string&, std::uint64_t&, const std::string&);
template Option CommandLine::option(const std::string&, std::optional<std::uint64_t>&, const std::string&);

void CommandLine::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

void CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    const int status = app_->exit(error, out, err);
    throw CommandLineExit(status == 0 ? 0 : 2, out.str() + err.str());
  }
}

}  // namespace gradwire::bench
