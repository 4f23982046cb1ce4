// Finds the MPI job that a process belongs to, by its launcher's variables, before it calls MPI.
#pragma once

#include <string>
#include <string_view>

namespace gradwire {

/// A text that is the same on all processes of one MPI_COMM_WORLD and on no others, not even on those that they spawn.
/// Empty if it is unknown, as in a process that no launcher has started. With PMIx (Open MPI, srun): the namespace.
/// With Hydra (MPICH, Intel MPI): the address on which the mpiexec of this process's proxy listens, and the number of
/// the world. Else Slurm's or Flux's job.
[[nodiscard]] std::string mpi_job();
/// A text that is the same on all processes that one launcher started, and on those that they spawn, and that no other
/// job has at the same time: of mpirun, a step of srun (its number), Flux, PALS or torchrun. Empty if it is unknown.
[[nodiscard]] std::string launched_job();
/// This process's rank by the launcher; -1 if the launcher does not give it. MPI's own rank may differ.
[[nodiscard]] int launched_rank();

/// The job by the arguments of a hydra proxy, each ended by a zero: "hydra vm:39605 0"; empty for other processes.
[[nodiscard]] std::string hydra_job(std::string_view arguments);

}  // namespace gradwire
