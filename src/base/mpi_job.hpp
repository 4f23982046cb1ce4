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

/// What a launcher calls its job: mpirun, srun, Flux, PALS or torchrun.
struct LaunchedJob {
  /// The same on all processes that one launcher started, and on those that they spawn. No other job has it at the same
  /// time, or, of a step of Slurm, no other step of the job. Empty if it is unknown.
  std::string text;
  bool is_slurm_step = false;  // `text` is the number of a step
};
[[nodiscard]] LaunchedJob launched_job();

/// This process's rank by the launcher; -1 if the launcher does not give it. MPI's own rank may differ.
[[nodiscard]] int launched_rank();
/// This process's number among those of its job. What torchrun and others name RANK goes before the launcher's, which
/// may have started one process for all of a host. -1 if neither is there.
[[nodiscard]] int rank_in_job();

/// The job by the arguments of a hydra proxy, each ended by a zero: "hydra vm:39605 0"; empty for other processes.
[[nodiscard]] std::string hydra_job(std::string_view arguments);

}  // namespace gradwire
