#include "plugins/mpi_preload/status.hpp"

#include <atomic>
#include <chrono>
#include <limits>
#include <string>

#include "plugins/mpi_preload/process.hpp"

namespace gradwire::mpi_preload {
namespace {

constexpr std::chrono::nanoseconds kInterval = std::chrono::seconds(30);

// Any thread may call it; one of them gets true.
bool due() {
  static std::atomic<std::int64_t> next{std::numeric_limits<std::int64_t>::min()};
  const std::int64_t now = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::int64_t expected = next;
  return now >= expected && next.compare_exchange_strong(expected, now + kInterval.count());
}

bool is_first_of_all() {
  static const bool first = [] {
    int rank = -1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank == 0;
  }();
  return first;
}

}  // namespace

void tell_of_compressed(const CommState& state) {
  static std::atomic<bool> told_nonfinite{false};
  const Process& self = process();
  if (self.ledger.nonfinite() && state.rank == 0 && !self.configuration.quiet && !told_nonfinite.exchange(true)) {
    tell(std::string(drop_in::kNonfiniteWarning));
  }
  for (const std::string& line : state.reducer->take_lines()) {
    if (!self.configuration.quiet) {
      tell(line);
    }
  }
  if (self.configuration.tells_status && is_first_of_all() && due()) {
    tell(drop_in::status_text(self.ledger));
  }
}

}  // namespace gradwire::mpi_preload
