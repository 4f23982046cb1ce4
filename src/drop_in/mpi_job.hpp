// Which MPI job a process belongs to, from what its launcher has told it, before it calls MPI.
#pragma once

#include <string>
#include <string_view>

namespace gradwire::drop_in {

/// The same on all processes of one MPI_COMM_WORLD and on no others, also on those that they spawn. Empty where nothing
/// says it: as in a process that no launcher has started. PMIx (Open MPI, srun): the namespace. Hydra (MPICH, Intel
/// MPI): where the mpiexec of this process's proxy listens, and the number of the world. Else Slurm's or Flux's job.
[[nodiscard]] std::string mpi_job();
/// What the launcher calls this process's rank; -1 where it does not say. MPI itself may say something else.
[[nodiscard]] int launched_rank();

/// Of the arguments of a hydra proxy, each ended by a zero: "hydra vm:39605 0"; empty where it is none.
[[nodiscard]] std::string hydra_job(std::string_view arguments);

}  // namespace gradwire::drop_in
