// Runs a program under mpirun and keeps what it printed.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tests/support/run_program.hpp"

namespace gradwire::test {

/// `program` is a built program, with its arguments.
inline Outcome run_ranks_of(int ranks, const std::string& program) {
  return run_program(std::string("OMP_NUM_THREADS=1 '") + GRADWIRE_SOURCE_DIR + "/tests/support/mpi_run' '" +
                     GRADWIRE_MPIEXEC + "' " + std::to_string(ranks) + " '" + GRADWIRE_BIN + "'/" + program);
}

/// The number that the first group of `pattern` matches in the output; a failure and 0 where there is none.
inline double number_in(const Outcome& outcome, const std::string& pattern) {
  std::smatch match;
  if (!std::regex_search(outcome.output, match, std::regex(pattern))) {
    ADD_FAILURE() << "no \"" << pattern << "\" in:\n" << outcome.output;
    return 0;
  }
  return std::stod(match[1]);
}

}  // namespace gradwire::test
