// What benchmarks do with their command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>

namespace gradwire::bench {

/// Ends a command line early: help (status 0) or a usage error (status 2), with the text to print.
struct CommandLineExit : std::runtime_error {
  CommandLineExit(int code, const std::string& text) : std::runtime_error(text), status(code) {}
  int status;
};

/// app.parse(); throws CommandLineExit.
inline void parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    const int status = app.exit(error, out, err);
    throw CommandLineExit(status == 0 ? 0 : 2, out.str() + err.str());
  }
}

inline void print(const CommandLineExit& exit) { std::fputs(exit.what(), exit.status == 0 ? stdout : stderr); }

/// Runs `body()`, which returns the exit status of the program `name`; 1 after an exception.
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
