// Runs a command and keeps its output.
#pragma once

#include <string>

namespace gradwire::test {

struct Outcome {
  int status = -1;     // of exit; 128 + signal where one ended it
  std::string output;  // stdout and stderr
};

/// `command` is a shell command line.
Outcome run_program(const std::string& command);

/// The number that the first group of `pattern` matches in the output; a failure and 0 where there is none.
double number_in(const Outcome& outcome, const std::string& pattern);

}  // namespace gradwire::test
