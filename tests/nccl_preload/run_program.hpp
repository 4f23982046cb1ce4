// Runs a program with stdout and stderr apart, and reads the report that the drop-in leaves.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {

struct Outcome {
  int status = -1;
  std::string out, err;
};

/// `environment` as in a shell ("A=1 B=2"), `command` a program and its arguments. Ends after a minute.
inline Outcome run_program(const std::string& environment, const std::string& command) {
  const ScratchFolder scratch;
  const std::string out = scratch.file("out"), err = scratch.file("err");
  const int status =
      std::system(("env " + environment + " timeout -k 5 60 " + command + " >" + out + " 2>" + err).c_str());
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_text(out),
          .err = read_text(err)};
}

}  // namespace gradwire::test
