// Records the buffers of the job's sums on rank 0 (GRADWIRE_RECORD_GRADIENTS).
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>

#include "choice/decision.hpp"

namespace gradwire::mpi_preload {

/// Whether this rank records calls.
extern constinit std::atomic<bool> g_records;
[[nodiscard]] inline bool records() noexcept { return g_records.load(std::memory_order_relaxed); }

/// To be called once MPI is up.
void begin_recording() noexcept;
/// To be called before a reduction, with its arguments, if records().
void record_call(choice::Function function, const void* send, const void* receive, std::int64_t count,
                 MPI_Datatype type, MPI_Op op) noexcept;
/// To be called before MPI_Finalize: writes the index, and says what was recorded.
void end_recording() noexcept;

}  // namespace gradwire::mpi_preload
