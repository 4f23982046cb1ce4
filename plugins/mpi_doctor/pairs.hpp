// Measures links and clocks, one pair of ranks after the other while all others sleep. Every wait ends: after kSilence
// the other process counts as dead, and the job ends with a line that names it.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "plugins/mpi_doctor/findings.hpp"

namespace gradwire::doctor {

/// The texts of all ranks, by rank, on rank 0; nothing on others.
[[nodiscard]] std::vector<std::string> gather_texts(MPI_Comm comm, const std::string& mine);

/// Called on rank 0: measures clocks into `facts`, and the pairs of `ranks`, and shows progress on standard error.
/// Other ranks call serve().
[[nodiscard]] Pairs measure(MPI_Comm comm, std::vector<Facts>& facts, const std::vector<int>& ranks);
/// Called on any other rank: follows rank 0's orders until that ends the measurement. Returns 0, since the exit status
/// of the job is rank 0's.
[[nodiscard]] int serve(MPI_Comm comm);
void end_service(MPI_Comm comm);

}  // namespace gradwire::doctor
