#include "plugins/mpi_preload/observed.hpp"

#include <mpi.h>

#include "base/environment.hpp"
#include "base/mutex.hpp"
#include "drop_in/observed_calls.hpp"
#include "plugins/mpi_preload/comm_state.hpp"
#include "plugins/mpi_preload/process.hpp"

namespace gradwire::mpi_preload {
namespace {

// Runs beside the job's threads, and without MPI, since they may be anywhere in it.
std::vector<observe::ReplacedCalls> calls_so_far() {
  Process& self = process();
  drop_in::Ledger all;
  all.merge(self.ledger.to_text());
  const MutexLock lock(self.mutex);
  for (const CommState* state : self.states) {
    state->count_into(all, true);
  }
  return drop_in::replaced_calls(all);
}

}  // namespace

void begin_metrics() noexcept {
  if (environment("GRADWIRE_LET_JOIN")) {
    return;  // its ranks use a session over TCP, whose numbers belong into the page and the files
  }
  int rank = -1;
  int size = 1;
  if (may_act() && PMPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS &&
      PMPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS) {
    drop_in::observe_process(
        {.part = "mpi", .rank = [rank] { return std::optional(rank); }, .world_size = size, .calls = calls_so_far});
  }
}

}  // namespace gradwire::mpi_preload
