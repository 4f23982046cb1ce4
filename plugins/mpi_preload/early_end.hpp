// Signals that end a job: mpirun, Slurm and other queues send them some time before SIGKILL.
#pragma once

namespace gradwire::mpi_preload {

/// After MPI_Init. From here on, where rank 0 is to write a report, SIGTERM, SIGINT, SIGHUP and SIGXCPU make it write
/// that before they end it, as they do; other ranks end a little later. Signals that the job handles or ignores are
/// left alone.
void watch_for_an_early_end() noexcept;
/// At MPI_Finalize: signals are again as they were.
void stop_watching() noexcept;

/// The report of this rank's calls alone, if none is written yet; `signal` says why. In finish.cpp.
void report_early(int signal, int world_size) noexcept;

}  // namespace gradwire::mpi_preload
