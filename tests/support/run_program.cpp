#include "tests/support/run_program.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <regex>
#include <stdexcept>

namespace gradwire::test {

Outcome run_program(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) {
    throw std::runtime_error("cannot run " + command);
  }
  char buffer[4096];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    outcome.output.append(buffer, got);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

double number_in(const Outcome& outcome, const std::string& pattern) {
  std::smatch match;
  if (!std::regex_search(outcome.output, match, std::regex(pattern))) {
    ADD_FAILURE() << "no \"" << pattern << "\" in:\n" << outcome.output;
    return 0;
  }
  return std::stod(match[1]);
}

}  // namespace gradwire::test
