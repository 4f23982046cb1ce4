// The report and the summary that this process writes at its end, about all its groups.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "drop_in/ledger.hpp"
#include "plugins/torch_c10d/observing.hpp"

namespace gradwire::torch_c10d {

/// Prints a line on standard error.
void say(const std::string& line) noexcept;
/// Says once that NaN or Inf was in a compressed sum.
void tell_of_nonfinite();

/// The contents of the report besides the numbers.
struct Reporting {
  Mutex mutex;
  std::shared_ptr<Observing> observing GUARDED_BY(mutex);     // null unless it observes
  std::optional<drop_in::ReportHead> head GUARDED_BY(mutex);  // on the rank 0 of the first group
  std::optional<std::string> file GUARDED_BY(mutex);
  bool quiet GUARDED_BY(mutex) = false;
};
[[nodiscard]] Reporting& reporting();

}  // namespace gradwire::torch_c10d
