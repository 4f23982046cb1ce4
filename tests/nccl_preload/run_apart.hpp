// Runs a program, and keeps its stdout and stderr separate.
#pragma once

#include <string>

#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {

struct OutcomeApart {
  int status = -1;  // as in Outcome
  std::string out, err;
};

/// `environment` is as in a shell ("A=1 B=2"), `command` a program and its arguments. The program is ended after a
/// minute.
inline OutcomeApart run_apart(const std::string& environment, const std::string& command) {
  const ScratchFolder scratch;
  const std::string err = scratch.file("err");
  const Outcome outcome = run_program("env " + environment + " timeout -k 5 60 " + command + " 2>" + err);
  return {.status = outcome.status, .out = outcome.output, .err = read_text(err)};
}

}  // namespace gradwire::test
