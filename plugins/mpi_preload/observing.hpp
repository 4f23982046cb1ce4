// The work of an observing process beside the job's calls: it times the library, encodes samples of values, and
// exchanges some real messages in MPI_Finalize. It sends nothing before that.
#pragma once

#include <cstdint>

#include "drop_in/ledger.hpp"
#include "plugins/mpi_preload/reduce.hpp"

namespace gradwire::mpi_preload {

/// To be called in MPI_Init, once all ranks are known to observe.
void begin_observing();
/// To be called before the library's own call: now and then takes a sample of this rank's values.
void observe_values(const Reduce& call, const drop_in::CallClass& what) noexcept;
/// To be called after it. `calls`: the number of calls for which this one stands, with those since the last timed one.
void observe_seconds(const drop_in::CallClass& what, double seconds, std::uint64_t calls) noexcept;
/// The number of further calls that may pass unobserved, after the `call`th, which took `cost` seconds beside the
/// `call_seconds` of the library.
[[nodiscard]] std::uint64_t next_look(std::uint64_t call, double cost, double call_seconds) noexcept;

/// To be called in MPI_Finalize; collective where `all_ranks_have_drop_in`: exchanges real messages of the largest
/// classes, for at most 1% of the run and 1 s. Then adds the observations to the ledger.
void end_observing(int rank, int size, bool all_ranks_have_drop_in);

}  // namespace gradwire::mpi_preload
