// Signals that end a job: mpirun, Slurm and other queues send them some time before SIGKILL.
#pragma once

namespace gradwire::mpi_preload {

/// To be called after MPI_Init. If rank 0 is to write a report, SIGTERM, SIGINT, SIGHUP and SIGXCPU make it write the
/// report before they end it; other ranks end a little later. Signals that the job handles or ignores are not changed.
void watch_for_an_early_end() noexcept;
/// To be called in MPI_Finalize: restores the signals.
void stop_watching() noexcept;

/// Writes the report of this rank's calls alone, if none is written yet; `signal` is the reason. Defined in finish.cpp.
void report_early(int signal, int world_size) noexcept;

}  // namespace gradwire::mpi_preload
