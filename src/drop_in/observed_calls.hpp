// The counts of a drop-in, as metrics of this process.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "drop_in/ledger.hpp"
#include "observe/watching.hpp"

namespace gradwire::drop_in {

/// The calls by function and reason. The report has them by count and size, too.
[[nodiscard]] std::vector<observe::ReplacedCalls> replaced_calls(const Ledger& ledger);

struct ObservedProcess {
  std::string part;                          // "mpi", "nccl", "torch"
  std::function<std::optional<int>()> rank;  // none: not known yet
  int world_size = 1;                        // ranks of the job; 1 where they are not known
  /// All counts so far. Called on any thread, while the job's threads run.
  std::function<std::vector<observe::ReplacedCalls>()> calls;
};
/// Publishes metrics if GRADWIRE_METRICS is set; only the first call of a process counts. The numbers never go down.
void observe_process(const ObservedProcess& process) noexcept;

}  // namespace gradwire::drop_in
