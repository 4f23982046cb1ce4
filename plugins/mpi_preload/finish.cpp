#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/current_error.hpp"
#include "base/environment.hpp"
#include "base/mutex.hpp"
#include "base/world_name.hpp"
#include "observe/collector.hpp"
#include "plugins/mpi_preload/comm_state.hpp"
#include "plugins/mpi_preload/early_end.hpp"
#include "plugins/mpi_preload/interpose.hpp"
#include "plugins/mpi_preload/observing.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "plugins/mpi_preload/quiet_errors.hpp"
#include "plugins/mpi_preload/recording.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_check_in.hpp"
#include "transport/mpi_faults.hpp"

namespace gradwire::mpi_preload {
namespace {

using transport::check_mpi;

// Buffers that MPI may still use when waiting was given up.
struct Gathering {
  std::string mine;
  int bytes = 0;
  std::vector<int> sizes;
  std::vector<int> places;
  std::string all;
  MPI_Request request = MPI_REQUEST_NULL;
};

// How long a rank waits for the others here. It is the same for all ranks, since a rank that waited for longer would
// wait for one that has given up.
constexpr std::chrono::milliseconds kLongestWait = std::chrono::seconds(30);

// Adds the other ranks' numbers to the ledger of rank 0; false if some did not come.
bool gather_ledgers(int rank, int size) {
  const auto limit = kLongestWait;
  auto gathering = std::make_unique<Gathering>();
  Gathering& g = *gathering;
  g.mine = process().ledger.to_text();
  g.bytes = static_cast<int>(g.mine.size());
  g.sizes.resize(static_cast<std::size_t>(size));
  check_mpi(PMPI_Igather(&g.bytes, 1, MPI_INT, g.sizes.data(), 1, MPI_INT, 0, MPI_COMM_WORLD, &g.request),
            "MPI_Igather");
  if (!transport::finish_within(g.request, limit)) {
    static_cast<void>(gathering.release());
    return false;
  }
  int total = 0;
  for (const int bytes : g.sizes) {
    g.places.push_back(total);
    total += bytes;
  }
  g.all.resize(static_cast<std::size_t>(total));
  check_mpi(PMPI_Igatherv(g.mine.data(), g.bytes, MPI_CHAR, g.all.data(), g.sizes.data(), g.places.data(), MPI_CHAR, 0,
                          MPI_COMM_WORLD, &g.request),
            "MPI_Igatherv");
  if (!transport::finish_within(g.request, limit)) {
    static_cast<void>(gathering.release());
    return false;
  }
  for (std::size_t other = 1; rank == 0 && other < g.sizes.size(); ++other) {
    process().ledger.merge(
        g.all.substr(static_cast<std::size_t>(g.places[other]), static_cast<std::size_t>(g.sizes[other])));
  }
  return true;
}

// Writes the report once: in MPI_Finalize, or when a signal ends the job, which may come in the middle of that.
void write_report(const std::string& file, const std::string& text) {
  static Mutex mutex;
  static bool written = false;
  const MutexLock lock(mutex);
  if (written) {
    return;
  }
  written = true;
  if (const auto problem = drop_in::write_report(file, text)) {
    say(*problem);
  }
}

drop_in::ReportHead head_of(int world_size, const std::string& note) {
  const Process& self = process();
  return {.world_size = world_size,
          .implementation = self.implementation,
          .dry_run = self.configuration.dry_run,
          .policy = self.configuration.planner.policy().source,
          .disabled =
              self.agreement.disabled_because.empty() ? self.configuration.disabled : self.agreement.disabled_because,
          .note = note,
          .has_session = self.has_session,
          .has_key = environment("GRADWIRE_KEY").has_value()};
}

void finish_or_throw() {
  Process& self = process();
  int rank = 0;
  int size = 1;
  check_mpi(PMPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(PMPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  free_states();               // adds the counts of communicators to the ledger
  observe::stop_collecting();  // other ranks' numbers are no metrics of this rank
  self.finished = true;
  if (self.world) {
    self.world->end();
  }
  // All ranks meet in MPI_Finalize. Where all calls are forwarded there is nothing to gather.
  const QuietErrors quiet(MPI_COMM_WORLD);
  const bool gathers = self.all_ranks_have_drop_in && self.agreement.mode != drop_in::Mode::disabled && size > 1;
  if (self.agreement.mode == drop_in::Mode::observing) {
    end_observing(rank, size, gathers);
  }
  // If MPI goes on when ranks end, one rank may know of an end that another rank does not know yet.
  const bool may_gather = !transport::tolerates_faults() || (!self.failed && !transport::is_faulty(MPI_COMM_WORLD));
  const bool complete = !gathers || (may_gather && gather_ledgers(rank, size));
  if (rank != 0) {
    return;
  }
  const drop_in::ReportHead head = head_of(size, complete ? "" : "the numbers of other ranks are missing");
  if (self.configuration.recording) {
    const std::string problem = drop_in::write_choices(
        file_with_world_name(*self.configuration.recording),
        drop_in::choices_to_text(self.ledger.choices(), self.configuration.policy_fingerprint()));
    if (!problem.empty()) {
      say(problem);
    }
  }
  if (self.configuration.report) {
    write_report(*self.configuration.report, drop_in::report_json(head, self.ledger));
  }
  if (!self.configuration.quiet && self.ledger.any()) {
    say(drop_in::report_summary(head, self.ledger));
  }
}

const char* name_of(int signal) {
  switch (signal) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    default: return "SIGXCPU";
  }
}

}  // namespace

void finish() noexcept {
  try {
    end_recording();
    if (may_act()) {
      finish_or_throw();
    }
  } catch (...) {
    say("at MPI_Finalize: " + std::string(current_error().what()));
  }
  stop_watching();
}

// Runs beside the job's threads, and without MPI, since they may be anywhere in it.
void report_early(int signal, int world_size) noexcept {
  try {
    Process& self = process();
    drop_in::Ledger mine;
    mine.merge(self.ledger.to_text());
    {
      const MutexLock lock(self.mutex);
      for (const CommState* state : self.states) {
        state->count_into(mine, true);
      }
    }
    const drop_in::ReportHead head =
        head_of(world_size, "ended by " + std::string(name_of(signal)) + " before MPI_Finalize; rank 0's calls alone");
    write_report(*self.configuration.report, drop_in::report_json(head, mine));
  } catch (...) {
    say("the report is lost: " + std::string(current_error().what()));
  }
}

}  // namespace gradwire::mpi_preload
