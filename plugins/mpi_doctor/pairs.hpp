// Measures links and clocks, one pair of ranks after the other while all others sleep. Every wait ends: after
// kSilence the process is taken for dead, and the job ends with a line that names it.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "plugins/mpi_doctor/findings.hpp"

namespace gradwire::doctor {

/// Texts of all ranks, by rank, on rank 0; elsewhere nothing.
[[nodiscard]] std::vector<std::string> gather_texts(MPI_Comm comm, const std::string& mine);

/// Rank 0: measures clocks into `facts`, and the pairs of `ranks`, and tells progress on standard error. Others: see
/// serve().
[[nodiscard]] Pairs measure(MPI_Comm comm, std::vector<Facts>& facts, const std::vector<int>& ranks);
/// Any other rank: does what rank 0 says until that says it is over. Returns 0: the exit status of the job is rank 0's.
[[nodiscard]] int serve(MPI_Comm comm);
void end_service(MPI_Comm comm);

}  // namespace gradwire::doctor
