// Runs a command and keeps its output.
#pragma once

#include <string>

namespace gradwire::test {

struct Outcome {
  int status = -1;     // exit status; 128 + signal if a signal ended it
  std::string output;  // stdout and stderr
};

/// `command` is a shell command line.
Outcome run_program(const std::string& command);

/// Returns the number that the first group of `pattern` matches in the output; without a match, the test fails and this
/// returns 0.
double number_in(const Outcome& outcome, const std::string& pattern);

}  // namespace gradwire::test
