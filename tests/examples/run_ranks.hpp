// Runs a program under mpirun and keeps its output.
#pragma once

#include <string>

#include "tests/support/run_program.hpp"

namespace gradwire::test {

/// `program` is a built program with its arguments.
inline Outcome run_ranks_of(int ranks, const std::string& program) {
  return run_program(std::string("OMP_NUM_THREADS=1 '") + GRADWIRE_SOURCE_DIR + "/tests/support/mpi_run' '" +
                     GRADWIRE_MPIEXEC + "' " + std::to_string(ranks) + " '" + GRADWIRE_BIN + "'/" + program);
}

}  // namespace gradwire::test
