// What an observing process does beside the job's calls: it times the library, looks at samples of values, and at
// MPI_Finalize exchanges some real messages. Nothing of it is sent before that.
#pragma once

#include <cstdint>

#include "drop_in/ledger.hpp"
#include "plugins/mpi_preload/reduce.hpp"

namespace gradwire::mpi_preload {

/// In MPI_Init, once all ranks are known to observe.
void begin_observing();
/// Before the library's own call: now and then a sample of what this rank gives.
void observe_values(const Reduce& call, const drop_in::CallClass& what) noexcept;
/// After it; `calls`: this one and those since the last look that it stands for.
void observe_seconds(const drop_in::CallClass& what, double seconds, std::uint64_t calls) noexcept;
/// How many more calls may pass without a look, after the `call`th, which took `cost` seconds beside the
/// `call_seconds` of the library.
[[nodiscard]] std::uint64_t next_look(std::uint64_t call, double cost, double call_seconds) noexcept;

/// In MPI_Finalize; collective where `all_are_here`: real messages of the largest classes, for at most 1% of the run
/// and 1 s. Then the ledger gets what was observed.
void end_observing(int rank, int size, bool all_are_here);

}  // namespace gradwire::mpi_preload
