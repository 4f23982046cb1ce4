// Defines the command lines of benchmarks.
#pragma once

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gradwire::bench {

/// Ends a command line early: help (status 0) or a usage error (status 2), with the text to print.
struct CommandLineExit : std::runtime_error {
  CommandLineExit(int code, const std::string& text) : std::runtime_error(text), status(code) {}
  int status;
};

/// A command line that CLI11 parses. CLI11 itself is compiled only in command_line.cpp, since compiling it takes longer
/// than the rest of a benchmark.
class CommandLine {
 public:
  /// Declares the type and limits of an option's value.
  class Option {
   public:
    explicit Option(CLI::Option* option) : option_(option) {}
    Option& required();
    Option& existing_file();
    Option& existing_path();
    Option& positive();
    Option& one_of(const std::vector<std::string>& names);
    /// A number is an int, a double or a std::size_t.
    template <typename Number>
    Option& range(Number least, Number most);
    /// If the command line does not have the option, takes the value from the environment variable `name`.
    Option& or_environment(const std::string& name);

   private:
    CLI::Option* option_;
  };

  explicit CommandLine(const std::string& description);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// `value` is the default, shown unless it is zero, NaN or empty; parse() writes the option's value to it. Value is
  /// one of std::string, double, int, std::uint32_t, std::uint64_t, an optional of the last, and
  /// std::vector<std::string>, separated by commas. A name without dashes is that of a positional argument.
  template <typename Value>
  Option option(const std::string& name, Value& value, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);

  /// Throws CommandLineExit.
  void parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

inline void print(const CommandLineExit& exit) { std::fputs(exit.what(), exit.status == 0 ? stdout : stderr); }

/// Runs `body()` and returns its result, the exit status of the program `name`; 1 after an exception.
template <class Body>
int program(const char* name, Body&& body) {
  try {
    return body();
  } catch (const CommandLineExit& exit) {
    print(exit);
    return exit.status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace gradwire::bench
