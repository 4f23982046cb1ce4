// Metrics of the drop-in (GRADWIRE_METRICS).
#pragma once

namespace gradwire::mpi_preload {

/// To be called once MPI is up. Any thread; later calls do nothing.
void begin_metrics() noexcept;

}  // namespace gradwire::mpi_preload
