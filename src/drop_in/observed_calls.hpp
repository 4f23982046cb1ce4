// What a drop-in counted, as metrics of this process.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "drop_in/ledger.hpp"
#include "observe/watching.hpp"

namespace gradwire::drop_in {

/// By function and reason; what counts and sizes of calls there are is for the report.
[[nodiscard]] std::vector<observe::ReplacedCalls> replaced_calls(const Ledger& ledger);

struct ObservedProcess {
  std::string part;                          // "mpi", "nccl", "torch"
  std::function<std::optional<int>()> rank;  // none: not known yet
  /// All that was counted so far. Any thread; beside the job's own.
  std::function<std::vector<observe::ReplacedCalls>()> calls;
};
/// As GRADWIRE_METRICS asks for it; the first call of a process counts. Numbers never go down, whatever the moment.
void observe_process(const ObservedProcess& process) noexcept;

}  // namespace gradwire::drop_in
